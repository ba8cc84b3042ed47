package apitypes_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer/apitypes"
)

// All types of the group example.com are stored: here it has one.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(answer)) // in place of a cluster's API server
	defer server.Close()
	t := apitypes.New(apitypes.Options{
		Config:      &rest.Config{Host: server.URL},
		Cluster:     stream.Cluster{UID: "2d7c4c1f-5c3a-4a51-9f8e-2b4f1b7f6f4e"}, // of namespace kube-system
		Patterns:    []apitypes.Pattern{{Group: "example.com"}},
		UntilSynced: true,
	})
	fmt.Println(t.Run(context.Background(), &printer{}))
	// Output:
	// ADDED default/one
	// synced at 7
	// synced
}

// printer is a sink that forgets what it has printed.
type printer struct{}

func (printer) Open(_ context.Context, streams []sink.Stream) (all []sink.Stored, err error) {
	for range streams {
		all = append(all, sink.Stored{State: stream.InMemory()})
	}
	return all, nil
}

func (printer) Write(_ context.Context, batch sink.Batch) error {
	for _, piece := range batch.Pieces {
		for _, m := range piece.Messages {
			switch m := m.(type) {
			case stream.Event:
				fmt.Println(m.Type, m.Object.Key())
			case stream.Synced:
				fmt.Println("synced at", m.Revision)
			}
		}
	}
	return nil
}

func (printer) Close() error { return nil }

var answers = map[string]string{
	"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"example.com",` +
		`"versions":[{"groupVersion":"example.com/v1","version":"v1"}]}]}`,
	"/apis/example.com": `{"kind":"APIGroup","apiVersion":"v1","name":"example.com",` +
		`"versions":[{"groupVersion":"example.com/v1","version":"v1"}]}`,
	"/apis/example.com/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1",` +
		`"resources":[{"name":"widgets","kind":"Widget","namespaced":true,"verbs":["list","watch"]}]}`,
	"/apis/example.com/v1/widgets": `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7"},` +
		`"items":[{"metadata":{"name":"one","namespace":"default","uid":"1","resourceVersion":"5"}}]}`,
}

func answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	text, ok := answers[r.URL.Path]
	switch {
	case !ok:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	case r.URL.Query().Has("watch"):
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		fmt.Fprint(w, text)
	}
}
