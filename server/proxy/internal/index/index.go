package index

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/server/proxy/internal/discovery"
	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// recordEvery is the least time between two writes of a resource.
const recordEvery = time.Second

// secrets are never in an index.
var secrets = schema.GroupResource{Resource: "secrets"}

// Index is the records of the resources that a proxy follows, in a file. A nil *Index has none, and does nothing.
type Index struct {
	file *File
	// begun is closed when the others are set, and the resources are followed again.
	begun    chan struct{}
	restored map[string]*store.Records // by name; each until its first use
	resuming map[schema.GroupVersionResource]bool
}

// New returns the index in a file, nil for nil.
func New(file *File) *Index {
	if file == nil {
		return nil
	}
	return &Index{file: file, begun: make(chan struct{}), resuming: map[schema.GroupVersionResource]bool{}}
}

// Load reads the file, as soon as the server says which cluster it is, and returns the resources that are to be
// followed again: those that the function allows. The caller calls Begun when it follows them, and follows none before.
func (x *Index) Load(ctx context.Context, server discovery.Server,
	allows func(of schema.GroupVersionResource, as verbatim.Representation) bool,
) map[schema.GroupVersionResource][]verbatim.Representation {
	if x == nil {
		return nil
	}
	cluster := server.AwaitCluster(ctx)
	if ctx.Err() != nil {
		return nil
	}
	restored, err := x.file.Restore(cluster)
	if err != nil {
		klog.ErrorS(err, "The index on disk can't be read", "file", x.file.path)
	}
	x.restored = restored
	again := map[schema.GroupVersionResource][]verbatim.Representation{}
	for name := range restored {
		if of, as, ok := parseName(name); ok && allows(of, as) {
			again[of] = append(again[of], as)
			x.resuming[of] = true
		} else {
			delete(restored, name)
		}
	}
	return again
}

// Begun says that the resources that Load has returned are followed.
func (x *Index) Begun() {
	if x != nil {
		close(x.begun)
	}
}

// Resumes waits until resources are followed again, and reports whether one of them is. It reports false when ctx ends.
func (x *Index) Resumes(ctx context.Context, of schema.GroupVersionResource) bool {
	if x == nil {
		return false
	}
	select {
	case <-x.begun:
		return x.resuming[of]
	case <-ctx.Done():
		return false
	}
}

// Covers reports whether a resource is in the index: Secrets never are.
func (x *Index) Covers(of schema.GroupVersionResource) bool {
	return x != nil && of.GroupResource() != secrets
}

// Take returns the records with which a resource begins in a representation, nil if there are none. Calls of Take are
// not concurrent.
func (x *Index) Take(of schema.GroupVersionResource, as verbatim.Representation) *store.Records {
	if x == nil {
		return nil
	}
	name := Name(of, as)
	records := x.restored[name]
	delete(x.restored, name)
	return records
}

// Record writes the records of the cache of a resource in a representation until the cache has ended.
func (x *Index) Record(of schema.GroupVersionResource, as verbatim.Representation, cache *watchcache.Cache) {
	name, seen := Name(of, as), &store.Snapshot{}
	for ended := false; ; {
		delta, now, newer := cache.RecordsSince(seen)
		if now.Revision() > 0 && now.Cursor() != seen.Cursor() {
			if err := x.file.Write(name, delta); err != nil {
				klog.ErrorS(err, "The index on disk is not written any more", "resource", name)
				return
			}
		}
		if seen = now; ended {
			return
		}
		select {
		case <-newer:
		case <-cache.Ended():
		}
		select {
		case <-time.After(recordEvery):
		case <-cache.Ended():
			ended = true
		}
	}
}

// Drop removes a resource that is left to the server.
func (x *Index) Drop(of schema.GroupVersionResource) {
	if !x.Covers(of) {
		return
	}
	for _, slim := range []bool{false, true} {
		for _, as := range []verbatim.Encoding{verbatim.JSON{}, verbatim.Protobuf{}} {
			x.DropRepresentation(of, verbatim.Representation{Encoding: as, Slim: slim})
		}
	}
}

// DropRepresentation removes a resource that is no longer followed in a representation.
func (x *Index) DropRepresentation(of schema.GroupVersionResource, as verbatim.Representation) {
	if err := x.file.drop(Name(of, as)); err != nil {
		klog.ErrorS(err, "A resource stays in the index on disk", "resource", of)
	}
}

// Name is the name of a resource in a representation.
func Name(of schema.GroupVersionResource, as verbatim.Representation) string {
	return of.Group + "/" + of.Version + "/" + of.Resource + "/" + as.String()
}

// parseName is the inverse of Name.
func parseName(name string) (of schema.GroupVersionResource, as verbatim.Representation, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 4 {
		return of, as, false
	}
	as, ok = verbatim.ParseRepresentation(parts[3])
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}, as, ok
}
