package faults

import (
	"net/http"
	"net/url"
	"strings"
)

// Class is a kind of request: requests of one class have the same cost for a server and
// the same purpose for a client.
type Class string

// The classes of requests.
const (
	List       Class = "LIST"        // the first page, or all
	ListPage   Class = "LIST page"   // a further page, by its continue token
	Newest     Class = "LIST newest" // of one object, for the sake of its revision
	StreamList Class = "LIST stream" // a watch with sendInitialEvents
	Watch      Class = "WATCH"
	Get        Class = "GET"
	Write      Class = "WRITE"
	Other      Class = "OTHER" // discovery, health, metrics…
)

// Any matches every class and every resource.
const Any = ""

// Request is a client's request.
type Request struct {
	Class     Class  `json:"class"`
	Resource  string `json:"resource,omitempty"`  // such as pods or deployments.apps; empty for Other
	Namespace string `json:"namespace,omitempty"` // empty for all, or for a cluster-scoped resource
	Name      string `json:"name,omitempty"`      // of one object
	Revision  string `json:"revision,omitempty"`  // the parameter resourceVersion
	Number    int    `json:"number"`              // 1 for the first of its class and resource, and so on
	Client    string `json:"client,omitempty"`    // the user agent
	URI       string `json:"uri"`

	match, labelSelector, fieldSelector string // of the query
}

func classify(r *http.Request) Request {
	query := r.URL.Query()
	req := Request{
		Class: Other, Revision: query.Get("resourceVersion"), Client: clip(r.UserAgent()), URI: clip(r.URL.RequestURI()),
		match: query.Get("resourceVersionMatch"), labelSelector: query.Get("labelSelector"),
		fieldSelector: query.Get("fieldSelector"),
	}
	var group string
	var path []string // from the resource on, or from its namespace
	switch p := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); {
	case len(p) > 2 && p[0] == "api":
		path = p[2:]
	case len(p) > 3 && p[0] == "apis":
		group, path = p[1], p[3:]
	default:
		return req
	}
	if len(path) > 2 && path[0] == "namespaces" && path[2] != "status" && path[2] != "finalize" {
		req.Namespace, path = path[1], path[2:]
	}
	req.Resource = path[0]
	if group != "" {
		req.Resource += "." + group
	}
	if len(path) > 1 {
		req.Name = path[1]
	}
	req.Class = class(r.Method, req.Name, query)
	if req.Class == Get && isUpgrade(r) { // an exec, an attach or a port-forward over a WebSocket
		req.Class = Write
	}
	return req
}

// maxText bounds the texts of a transcript.
const maxText = 2 << 10

func clip(text string) string { return text[:min(len(text), maxText)] }

func class(method, name string, query url.Values) Class {
	switch {
	case method != http.MethodGet:
		return Write
	case isTrue(query, "watch") && isTrue(query, "sendInitialEvents"):
		return StreamList
	case isTrue(query, "watch"):
		return Watch
	case name != "":
		return Get
	case query.Get("continue") != "":
		return ListPage
	case query.Get("limit") == "1":
		return Newest
	default:
		return List
	}
}

// isTrue reads a boolean as an API server does: anything but these is true.
func isTrue(query url.Values, name string) bool {
	value := query.Get(name)
	return query.Has(name) && value != "false" && value != "0"
}

// matches reports whether req is of a class and a resource, either of which may be Any.
func (req Request) matches(class Class, resource string) bool {
	return (class == Any || class == req.Class) && (resource == Any || resource == req.Resource)
}
