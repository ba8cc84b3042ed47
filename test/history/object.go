package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keepwatch/keepwatch"
)

// Object is one state of an object, from etcd or from the server.
type Object struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	Labels   map[string]string
	content  string // all of it as JSON in one encoding, without its revision and kind
	metadata string // its metadata, in the same way
}

func (o *Object) Key() keepwatch.Key           { return o.key }
func (o *Object) UID() keepwatch.UID           { return o.uid }
func (o *Object) Revision() keepwatch.Revision { return o.revision }

// content returns what check compares in addition to key, UID and revision.
func content(o keepwatch.Object) string { return o.(*Object).content }

// metadataOf is content for a consumer of metadata alone.
func metadataOf(o keepwatch.Object) string { return o.(*Object).metadata }

// codecs read built-in kinds, and metadata alone.
var codecs = func() serializer.CodecFactory {
	known := runtime.NewScheme()
	utilruntime.Must(errors.Join(scheme.AddToScheme(known), metav1.AddMetaToScheme(known)))
	return serializer.NewCodecFactory(known)
}()

// encodedAsProtobuf is the prefix of protobuf, in etcd and in watch events.
var encodedAsProtobuf = []byte("k8s\x00")

// Parse parses an object in either encoding. If revision is not zero, it is the object's:
// etcd does not store it in the object.
func Parse(raw []byte, revision keepwatch.Revision) (*Object, error) {
	if bytes.HasPrefix(raw, encodedAsProtobuf) {
		decoded, err := runtime.Decode(codecs.UniversalDeserializer(), raw)
		if err != nil {
			return nil, err
		}
		if raw, err = json.Marshal(decoded); err != nil {
			return nil, err
		}
	}
	return parseJSON(raw, revision)
}

func parseJSON(raw []byte, revision keepwatch.Revision) (*Object, error) {
	var head struct {
		Metadata struct {
			Namespace, Name, UID, ResourceVersion string
			Labels                                map[string]string
		}
	}
	var body map[string]any
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("object %.200q: %w", raw, err)
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return nil, err
	}
	m := head.Metadata
	o := &Object{key: keepwatch.Key{Namespace: m.Namespace, Name: m.Name}, uid: keepwatch.UID(m.UID), Labels: m.Labels,
		revision: revision}
	if revision == 0 {
		number, err := strconv.ParseUint(m.ResourceVersion, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("revision of %s: %w", o.key, err)
		}
		o.revision = keepwatch.Revision(number)
	}
	delete(body, "apiVersion")
	delete(body, "kind")
	if metadata, ok := body["metadata"].(map[string]any); ok {
		delete(metadata, "resourceVersion")
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	alone, err := json.Marshal(body["metadata"])
	o.content, o.metadata = string(text), string(alone)
	return o, err
}

// RevisionOf returns the revision of a bookmark, in either encoding.
func RevisionOf(raw []byte) (keepwatch.Revision, error) {
	if !bytes.HasPrefix(raw, encodedAsProtobuf) {
		o, err := parseJSON(raw, 0)
		if err != nil {
			return 0, err
		}
		return o.revision, nil
	}
	decoded, err := runtime.Decode(codecs.UniversalDeserializer(), raw)
	if err != nil {
		return 0, err
	}
	m, err := meta.Accessor(decoded)
	if err != nil {
		return 0, err
	}
	number, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	return keepwatch.Revision(number), err
}
