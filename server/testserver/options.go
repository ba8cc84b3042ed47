package testserver

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch/server/past/fork"
	"github.com/keepwatch/keepwatch/source/history"
)

// Option is an option of [New].
type Option func(*options)

type options struct {
	etcd     bool
	rbac     bool
	version  string
	simulate bool
	crds     []fs.FS
	objects  []runtime.Object
	history  func(context.Context) (*fork.State, error)
	invalid  error // of an option; New fails with it
}

// History begins with the state of a cluster at a moment, as keepwatch sync has stored it: a time, revision/4711 or
// now. The database is one that sinks/sqlite.OpenHistory or sinks/postgres.OpenHistory has opened; New reads it, and
// does not close it. What another server would have at this moment is there with its UIDs, status and resourceVersions;
// see [fork.At].
func History(database history.Database, at string) Option {
	return func(o *options) {
		m, err := history.ParseMoment(at, time.Now())
		if err != nil {
			o.invalid = fmt.Errorf("History: %w", err)
		}
		o.history = func(ctx context.Context) (*fork.State, error) {
			return fork.At(ctx, history.New(database, history.Options{Known: fork.KnownType}), m, false, 0)
		}
	}
}

// CRDs creates the CustomResourceDefinitions in YAML or JSON files before New returns, and waits until their
// resources are served. Each path is such a file, or a folder, of which every file that ends in .yaml, .yml or .json is
// read. Documents of other kinds are ignored, so that a folder may have a kustomization.
func CRDs(paths ...string) Option {
	return func(o *options) {
		for _, path := range paths {
			files, err := filesAt(path)
			if err != nil {
				o.invalid = fmt.Errorf("CRDs: %w", err)
				return
			}
			o.crds = append(o.crds, files)
		}
	}
}

// CRDFiles is [CRDs] with the files of a file system, such as an embedded one.
func CRDFiles(files fs.FS) Option {
	return func(o *options) { o.crds = append(o.crds, files) }
}

// filesAt returns a folder, or a folder with nothing but one file.
func filesAt(path string) (fs.FS, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return os.DirFS(path), nil
	}
	return oneFile{os.DirFS(filepath.Dir(path)), filepath.Base(path)}, nil
}

// Objects creates objects before New returns, in this order, after the CustomResourceDefinitions. They may be typed,
// of a type in client-go's scheme, or unstructured. Namespaced ones without a namespace are created in default. A
// status that an object has is written, too.
func Objects(objects ...runtime.Object) Option {
	return func(o *options) { o.objects = append(o.objects, objects...) }
}

// Etcd stores the objects in a real etcd, embedded in the process, instead of memory. The server then starts and stops
// slower, and can be neither forked nor rewound nor restarted.
func Etcd() Option { return func(o *options) { o.etcd = true } }

// Version sets the release that /version answers, like "1.34". It changes nothing else. The default is the release of
// the libraries.
func Version(release string) Option { return func(o *options) { o.version = release } }

// Simulate lets pods run, without containers: they are scheduled to simulated nodes, and become Running and Ready.
// The controllers of Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs create and delete them, and rollouts
// end. There is one node, node-1, and each that the test creates. See [Server.Advance], and
// [controlplane.RunForAnnotation] for pods that end.
func Simulate() Option { return func(o *options) { o.simulate = true } }

// RBAC enforces the roles and bindings in the API, with the default ones of Kubernetes. Users of [Server.User] may then
// do what is granted to them or their groups; the administrator of [Server.Config] may do everything. Without it, every
// user may.
func RBAC() Option { return func(o *options) { o.rbac = true } }
