package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/kube"
)

// A list, and what happened since, until the server ends the stream.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(serve))
	defer server.Close()

	source, err := kube.New(&rest.Config{Host: server.URL}, kube.Options{
		Resource:  schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Namespace: "default",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	page, err := source.List(ctx, keepwatch.ListRequest{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("state at", page.Revision)
	for _, object := range page.Objects {
		fmt.Printf("%s\n", object.(*kube.Object).JSON())
	}

	watch, err := source.Watch(ctx, page.Revision)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer watch.Close()
	for {
		batch, err := watch.Next()
		if err != nil {
			var failure *keepwatch.Failure
			errors.As(err, &failure)
			fmt.Printf("%v: %v\n", failure.Kind, err)
			return
		}
		for _, change := range batch.Changes {
			fmt.Println(change.Type, change.Object.Key(), "at", change.Revision)
			if change.Type == keepwatch.Deleted {
				fmt.Printf("%s\n", change.Object.(*kube.Object).Metadata())
			}
		}
	}
	// Output:
	// state at 7
	// {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"colors","namespace":"default","uid":"u1","resourceVersion":"5"},"data":{"sky":"blue"}}
	// MODIFIED default/colors at 8
	// DELETED default/colors at 9
	// {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"colors","namespace":"default","uid":"u1","resourceVersion":"9"}}
	// ended: watch configmaps: the server ended the stream
}

// serve answers as an API server would.
func serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		io.WriteString(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`+
			`{"metadata":{"name":"colors","namespace":"default","uid":"u1","resourceVersion":"5"},"data":{"sky":"blue"}}]}`)
		return
	}
	for _, event := range []string{
		`{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"colors","namespace":"default","uid":"u1","resourceVersion":"8"},"data":{"sky":"grey"}}}`,
		`{"type":"DELETED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"colors","namespace":"default","uid":"u1","resourceVersion":"9"},"data":{"sky":"grey"}}}`,
	} {
		io.WriteString(w, event+"\n")
	}
}
