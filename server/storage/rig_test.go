package storage_test

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/source/memory"
	"github.com/keepwatch/keepwatch/server/storage"
	"github.com/keepwatch/keepwatch/store"
)

func TestMain(m *testing.M) {
	klog.SetLogger(funcr.New(logged.add, funcr.Options{}))
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests wait for etcd, mostly
		panic(err)
	}
	os.Exit(await.Tests(m))
}

var (
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
	pods   = schema.GroupResource{Resource: "pods"}
)

func init() {
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
}

func protobufCodec() runtime.Codec {
	s := protobuf.NewSerializer(scheme, scheme)
	return codecs.CodecForVersions(s, s, schema.GroupVersions{examplev1.SchemeGroupVersion}, nil)
}

func jsonCodec() runtime.Codec { return codecs.LegacyCodec(examplev1.SchemeGroupVersion) }

func newPod() runtime.Object     { return &example.Pod{} }
func newPodList() runtime.Object { return &example.PodList{} }

func podAttrs(o runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := o.(*example.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("%T is no pod", o)
	}
	return pod.Labels, fields.Set{
		"metadata.name":      pod.Name,
		"metadata.namespace": pod.Namespace,
		"spec.nodeName":      pod.Spec.NodeName,
		"spec.restartPolicy": string(pod.Spec.RestartPolicy),
		"status.phase":       string(pod.Status.Phase),
	}, nil
}

var podIndexers = cache.Indexers{
	"f:spec.nodeName": func(o any) ([]string, error) { return []string{o.(*example.Pod).Spec.NodeName}, nil },
	"f:metadata.namespace": func(o any) ([]string, error) {
		return []string{o.(*example.Pod).Namespace}, nil
	},
}

// options configure a rig.
type options struct {
	prefix string
	// resource is what metrics and messages call pods; empty is pods.
	resource    schema.GroupResource
	codec       runtime.Codec
	transformer value.Transformer
	// corruptible makes etcd3 as it is when unsafe deletions are allowed.
	corruptible bool
	indexers    cache.Indexers
	store       store.Options
	unshared    bool
	// clusterScoped makes the keys those of objects without a namespace.
	clusterScoped bool
	// failed gets the cause if the storage ends by itself; nil fails the test.
	failed func(error)
	// notWarmed leaves the objects of the start undecoded until they are read.
	notWarmed bool
	// dial are more options of the connection to etcd.
	dial []grpc.DialOption
	// memory makes the rig use a database in memory instead of an etcd.
	memory bool
	// follows makes each write return when the cache has it: no read at its revision waits, which would fail after 3 s.
	follows bool
}

// rig is a storage on an etcd or a database of its own, which can be restarted.
type rig struct {
	apistorage.Interface // the storage that runs now
	t                    testing.TB
	etcd                 *kubernetes.Client // of db if that is set
	db                   *memory.DB
	options              options
	compactor            etcd3.Compactor
	stop                 func()
}

func newRig(t testing.TB, o options) *rig {
	t.Helper()
	r := &rig{t: t, options: o}
	if o.memory {
		r.db = memory.New()
		t.Cleanup(r.db.Close)
		r.etcd, r.compactor = recorded(r.db.Client(path.Join("/", o.prefix, "/pods")+"/")), r.db
	} else {
		r.etcd = runEtcd(t, o.dial...)
		compactor := etcd3.NewCompactor(r.etcd.Client, 0, clock.RealClock{}, nil)
		t.Cleanup(compactor.Stop)
		r.compactor = compactor
	}
	if o.codec == nil {
		r.options.codec = protobufCodec()
	}
	if o.resource.Empty() {
		r.options.resource = pods
	}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

// runEtcd runs an etcd on a socket, quick to elect itself. The client records
// the lists.
func runEtcd(t testing.TB, dial ...grpc.DialOption) *kubernetes.Client {
	t.Helper()
	dir := must(os.MkdirTemp("", "etcd"))(t) // sockets need short names
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := embed.NewConfig()
	config.Dir = filepath.Join(dir, "data")
	config.ListenClientUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "s")}}
	config.AdvertiseClientUrls, config.ListenPeerUrls = config.ListenClientUrls, nil
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.TickMs, config.ElectionMs = 10, 100
	config.UnsafeNoFsync = true
	config.EnableGRPCGateway = false
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server := must(embed.StartEtcd(config))(t)
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(await.Deadline):
		t.Fatal("etcd does not start")
	}
	client := must(kubernetes.New(clientv3.Config{Endpoints: []string{config.ListenClientUrls[0].String()},
		Logger: zap.NewNop(), DialOptions: dial}))(t)
	t.Cleanup(func() { client.Close() })
	return recorded(client)
}

// recorded makes a client record its lists.
func recorded(client *kubernetes.Client) *kubernetes.Client {
	lists := storagetesting.NewKubernetesRecorder(client.Kubernetes)
	client.KV = storagetesting.NewKVRecorder(client.KV, lists)
	client.Kubernetes = lists
	return client
}

// start opens a storage, and waits until it is ready.
func (r *rig) start() {
	r.t.Helper()
	versioner := apistorage.APIObjectVersioner{}
	decoder := etcd3.NewDefaultDecoder(r.options.codec, versioner)
	leases := etcd3.NewDefaultLeaseManagerConfig()
	leases.ReuseDurationSeconds = 1
	raw := must(etcd3.New(r.etcd, r.compactor, r.options.codec, newPod, newPodList, r.options.prefix, "/pods/", pods,
		r.transformer(), leases, decoder, versioner))(r.t)
	var writes apistorage.Interface = raw
	if r.options.corruptible {
		writes = etcd3.NewStoreWithUnsafeCorruptObjectDeletion(writes, pods)
	}
	client := r.etcd.Client
	if r.db != nil {
		client = nil
	}
	s := must(storage.New(storage.Config{
		Client: client, Memory: r.db, Etcd: writes, GroupResource: r.options.resource,
		Prefix: r.options.prefix, ResourcePrefix: "/pods/", Namespaced: !r.options.clusterScoped,
		Codec: r.options.codec, Transformer: r.transformer(),
		NewFunc: newPod, GetAttrs: podAttrs, Indexers: &r.options.indexers, Store: r.options.store,
		Unshared: r.options.unshared, Metrics: counts,
	}))(r.t)
	if s.WarmAfter(0); r.options.notWarmed {
		s.WarmAfter(time.Hour)
	}
	failed := r.options.failed
	if failed == nil {
		failed = func(err error) { r.t.Error(err) }
	}
	stop := s.Start(failed)
	r.Interface, r.stop = s, sync.OnceFunc(func() { stop(); raw.Close() })
	await.True(r.t, "the storage is ready", func() bool { return s.ReadinessCheck() == nil })
	if !r.options.notWarmed {
		select {
		case <-s.Cache().Warmed():
		case <-time.After(await.Deadline):
			r.t.Fatal("the storage does not get warm")
		}
	}
}

func (r *rig) transformer() value.Transformer {
	if r.options.transformer != nil {
		return r.options.transformer
	}
	return identity.NewEncryptCheckTransformer()
}

// restart stops the storage and opens another one on the same etcd.
func (r *rig) restart() {
	r.t.Helper()
	r.stop()
	r.start()
}

// transformWith restarts under another transformer.
func (r *rig) transformWith(t value.Transformer) {
	r.t.Helper()
	r.options.transformer = t
	r.restart()
}

func (r *rig) Create(ctx context.Context, key string, o, out runtime.Object, ttl uint64) error {
	return r.reached(out, r.Interface.Create(ctx, key, o, out, ttl))
}

func (r *rig) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, update apistorage.UpdateFunc, cached runtime.Object) error {
	return r.reached(out, r.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached))
}

func (r *rig) Delete(ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc, cached runtime.Object, opts apistorage.DeleteOptions) error {
	return r.reached(out, r.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts))
}

// reached waits until the cache has what a write has returned, if the rig follows its writes.
func (r *rig) reached(written runtime.Object, err error) error {
	if err != nil || !r.options.follows || written == nil {
		return err
	}
	revision := keepwatch.Revision(must(r.Versioner().ObjectResourceVersion(written))(r.t))
	await.NoError(r.t, "the cache has the write", func() error {
		return r.Interface.(*storage.Storage).Cache().WaitForRevision(context.Background(), revision)
	})
	return nil
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// clean is a rig whose writes omit the empty namespace of "/pods//name": a key with one
// belongs to no object.
type clean struct{ *rig }

func (c clean) Create(ctx context.Context, key string, o, out runtime.Object, ttl uint64) error {
	return c.rig.Create(ctx, path.Clean(key), o, out, ttl)
}

func (c clean) GuaranteedUpdate(ctx context.Context, key string, into runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions,
	update apistorage.UpdateFunc, cached runtime.Object) error {
	return c.rig.GuaranteedUpdate(ctx, path.Clean(key), into, ignoreNotFound, preconditions, update, cached)
}

func (c clean) Delete(ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc,
	cached runtime.Object, opts apistorage.DeleteOptions) error {
	return c.rig.Delete(ctx, path.Clean(key), out, preconditions, validate, cached, opts)
}
