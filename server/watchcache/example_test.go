package watchcache_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// printer receives the events of a watch.
type printer struct{ enough func() }

func (p printer) Send(e watchcache.Event, _ bool) error {
	if e.Type == watch.Bookmark {
		fmt.Println("all of it, at", e.Revision)
		p.enough()
		return nil
	}
	fmt.Println(e.Type, e.Object.Key(), e.Object.Labels().Get("l"))
	return nil
}

func (p printer) Initialized() error { return nil }
func (p printer) Flush() error       { return nil }

// A cache follows a source, here one in memory, and answers lists and watches.
func Example() {
	var source *memory
	cache, err := watchcache.New(config(), func(c *watchcache.Cache) (watchcache.Source, error) {
		source = newMemory(c) // whose objects c.NewObject makes
		return source, nil
	})
	if err != nil {
		panic(err)
	}
	source.put("a", "x")
	source.put("b", "y")

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	go func() { _ = cache.Run(ctx) }()
	defer func() { cancel(); <-cache.Ended() }()
	if err := cache.WaitUntilReady(ctx); err != nil {
		panic(err)
	}

	list, err := cache.List(ctx, "/widgets/", apistorage.ListOptions{Recursive: true, Predicate: apistorage.Everything})
	if err != nil {
		panic(err)
	}
	for o := range list.All() {
		fmt.Println(o.Key(), o.Revision())
	}

	initial := true
	options := apistorage.ListOptions{Recursive: true, Predicate: apistorage.Everything, SendInitialEvents: &initial}
	options.Predicate.AllowWatchBookmarks = true
	w, err := cache.Watch(ctx, "/widgets/", options)
	if err != nil {
		panic(err)
	}
	watching, enough := context.WithCancel(ctx)
	if err := w.Serve(watching, nil, printer{enough}); err != nil {
		panic(err)
	}
	// Output:
	// ns/a 2
	// ns/b 3
	// ADDED ns/a x
	// ADDED ns/b y
	// all of it, at 3
}
