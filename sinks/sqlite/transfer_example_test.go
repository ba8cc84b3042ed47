package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// This example, which uses package stream/transfer, stores the pods of a cluster in a file, until it is interrupted.
func Example_transfer() {
	pods, err := kube.New(&rest.Config{Host: "https://127.0.0.1:6443"},
		kube.Options{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	resource := transfer.Resource{
		Stream: sink.Stream{ID: stream.Identity{Resource: "pods", Cluster: stream.Cluster{Server: "https://127.0.0.1:6443"}}},
		Source: pods,
	}
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	t := transfer.New(sqlite.New(filepath.Join(dir, "state.db"), sqlite.Options{}), []transfer.Resource{resource},
		transfer.Options{
			Cut: func(_ int, cut sink.Cut) { fmt.Println("complete at", cut.Revision) },
		})
	ctx, interrupt := context.WithCancel(context.Background())
	interrupt()
	fmt.Println(t.Run(ctx))
	// Output: context canceled
}
