package etcd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/server/source/etcd"
	"github.com/keepwatch/keepwatch/store"
)

// color is a decoded object. It embeds etcd's metadata.
type color struct {
	*etcd.Object
	Sky string `json:"sky"`
}

func decodeColor(o *etcd.Object, value []byte) (keepwatch.Object, error) {
	c := &color{Object: o}
	return c, json.Unmarshal(value, c)
}

// A reflector keeps a store equal to the keys below a prefix in etcd. The store was seeded,
// so that it has the history before it was created.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, stop := startEtcd()
	defer stop()
	begin, _ := client.Put(ctx, "/registry/colors/default/day", `{"sky":"blue"}`)
	client.Put(ctx, "/registry/colors/default/night", `{"sky":"black"}`)
	client.Put(ctx, "/registry/colors/default/day", `{"sky":"grey"}`)
	client.Delete(ctx, "/registry/colors/default/night")
	client.Put(ctx, "/registry/colors/default/day", `{"sky":`)

	source, err := etcd.New(client, etcd.Options{Prefix: "/registry/colors/", Decode: decodeColor})
	if err != nil {
		fmt.Println(err)
		return
	}
	cache := store.New(store.Options{})
	if _, err := source.Seed(ctx, cache, 10_000); err != nil {
		fmt.Println("seed:", err) // not fatal: the reflector lists
	}
	done := make(chan error)
	go func() { done <- reflector.New(source, cache, reflector.Options{}).Run(ctx) }()

	newest, err := source.Newest(ctx) // from here on the read is consistent
	if err != nil {
		fmt.Println(err)
		return
	}
	watcher := cache.Watch(store.Cursor{Revision: keepwatch.Revision(begin.Header.Revision)}, store.Filter{})
	for watcher.Cursor().Revision < newest {
		delivery, err := watcher.Next(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, change := range delivery.(keepwatch.Batch).Changes {
			switch o := change.Object.(type) {
			case *color:
				fmt.Println(change.Type, o.Key(), o.Sky)
			case *etcd.Undecodable:
				fmt.Println(change.Type, o.Key(), "undecodable:", o.Err)
			}
		}
	}
	cancel()
	fmt.Println(<-done)
	// Output:
	// ADDED default/night black
	// MODIFIED default/day grey
	// DELETED default/night black
	// MODIFIED default/day undecodable: unexpected end of JSON input
	// context canceled
}

// startEtcd runs an etcd in this process.
func startEtcd() (*clientv3.Client, func()) {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		panic(err)
	}
	m := newMember(dir)
	if err := m.start(); err != nil {
		panic(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: m.endpoints(), Logger: zap.NewNop()})
	if err != nil {
		panic(err)
	}
	return client, func() { client.Close(); m.stop(); os.RemoveAll(dir) }
}
