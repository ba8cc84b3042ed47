// Package objectjson encodes API objects as JSON, in the bytes that encoding/json writes, which the API
// machinery's serializer calls. It makes a plan for each Go type once. Of the API machinery's types
// that encode themselves it knows those that most objects have; it hands all others, and every
// option of encoding/json that the API's types do not use, to encoding/json.
package objectjson
