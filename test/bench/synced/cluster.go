// Package synced measures keepwatch sync, as a process, into each of its sinks.
//
//	cluster.go      an API server that costs next to nothing: one list, and then changes as fast as they are read
//	sinks.go        the sinks, with their servers
//	synced_test.go  the benchmark
package synced

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
)

// cluster is an API server with pods, whose answers are encoded before it starts. Its only list is at revision
// firstRevision. A watch from there on delivers the changes, as fast as the client reads them, and then a bookmark: it
// stands for a server that was written to while nobody watched.
type cluster struct {
	pods    int
	bodies  [][][]byte   // of a pod each: the JSON between what differs from pod to pod
	changes atomic.Int64 // since the list
}

const (
	firstRevision = 1_000_000
	distinct      = 200 // bodies
	placeholder   = "PLACEHOLDER"
)

// newCluster returns a cluster of pods as large clusters have them, or small ones, without changes.
func newCluster(pods int, small bool) (*cluster, error) {
	c := &cluster{pods: pods}
	for i := range distinct {
		object := fleet.Pod(i)
		if small {
			fleet.Shrink(object)
		}
		object.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		object.Name, object.Namespace, object.UID, object.ResourceVersion = placeholder, placeholder, placeholder, placeholder
		text, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		c.bodies = append(c.bodies, bytes.Split(text, []byte(placeholder)))
	}
	return c, nil
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch request.URL.Path {
	case "/version":
		fmt.Fprint(w, `{"major":"1","minor":"37","gitVersion":"v1.37.2"}`)
	case "/api":
		fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case "/apis":
		fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	case "/api/v1":
		fmt.Fprint(w,
			`{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","watch"]}]}`)
	case "/api/v1/namespaces/kube-system":
		fmt.Fprint(w,
			`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"00000000-0000-4000-8000-000000000000","resourceVersion":"1"}}`)
	case "/api/v1/pods":
		c.servePods(w, request)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}
}

func (c *cluster) servePods(w http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	if query.Get("watch") != "" {
		c.watch(w, request)
		return
	}
	// the question for the newest revision
	if strings.Contains(request.Header.Get("Accept"), "PartialObjectMetadataList") {
		fmt.Fprintf(w,
			`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"%d"},"items":[]}`,
			firstRevision+c.changes.Load())
		return
	}
	from, _ := strconv.Atoi(query.Get("continue"))
	to := c.pods
	if limit, err := strconv.Atoi(query.Get("limit")); err == nil && limit > 0 {
		to = min(to, from+limit)
	}
	next := ""
	if to < c.pods {
		next = strconv.Itoa(to)
	}
	fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":%q},"items":[`,
		firstRevision, next)
	for i := from; i < to; i++ {
		if i > from {
			_, _ = w.Write([]byte{','})
		}
		if err := c.write(w, i, firstRevision-c.pods+i); err != nil {
			return
		}
	}
	fmt.Fprint(w, "]}")
}

// write writes a pod at a revision.
func (c *cluster) write(w http.ResponseWriter, i, revision int) error {
	body := c.bodies[i%distinct]
	text := make([]byte, 0, 10<<10)
	for n, different := range [...]string{ // in the order of the fields
		fmt.Sprintf("web-%05d", i), fmt.Sprintf("team-%03d", i/1000), fmt.Sprintf("00000000-0000-4000-8000-%012d", i),
		strconv.Itoa(revision),
	} {
		text = append(append(text, body[n]...), different...)
	}
	_, err := w.Write(append(text, body[4]...))
	return err
}

// watch delivers the changes above a revision: change i is of pod i modulo their number.
func (c *cluster) watch(w http.ResponseWriter, request *http.Request) {
	from, err := strconv.Atoi(request.URL.Query().Get("resourceVersion"))
	if err != nil || request.URL.Query().Get("sendInitialEvents") != "" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"only watches from a revision on"}`)
		return
	}
	changes := int(c.changes.Load())
	for i := from - firstRevision; i < changes; i++ {
		_, _ = w.Write([]byte(`{"type":"MODIFIED","object":`))
		if c.write(w, i%c.pods, firstRevision+i+1) != nil {
			return
		}
		_, _ = w.Write([]byte("}\n"))
	}
	fmt.Fprintf(w,
		`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d","creationTimestamp":null}}}`+"\n", firstRevision+changes)
	w.(http.Flusher).Flush()
	<-request.Context().Done()
}
