package storage

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	cachermetrics "k8s.io/apiserver/pkg/storage/cacher/metrics"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/recent"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/etcd"
	"github.com/keepwatch/keepwatch/store"
)

// askAgain is the pause after a failure to learn etcd's newest revision.
const askAgain = 100 * time.Millisecond

var _ apistorage.Interface = (*Storage)(nil)

// Storage is one resource's storage. It answers while Run runs.
type Storage struct {
	config      Config
	etcd        apistorage.Interface
	versioner   apistorage.Versioner
	transformer value.Transformer
	source      *etcd.Source
	store       *store.Store
	meter       meter
	goType      reflect.Type // of what NewFunc makes
	nests       bool         // goType does
	indexes     []index
	opening     [64]sync.Mutex // of objects, by their keys: those that are written together have one revision
	seed        maphash.Seed
	interner    interner
	told        *recent.Cache[told, *shared]
	ready       chan struct{} // closed when the store has caught up for the first time
	stray       sync.Once     // logs the first key that is ignored
	warmAfter   time.Duration
	warmed      chan struct{} // closed when what it caught up with is decoded and indexed
	ended       chan struct{} // closed when Run ends

	mu   sync.Mutex
	life context.Context // of Run; nil before
	end  error           // why Run has ended; nil before
}

// New makes a storage. It reads nothing before Run.
func New(config Config) (*Storage, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	cachermetrics.Register()
	if config.Metrics == nil {
		config.Metrics = NewMetrics(metrics.NewKubeRegistry())
	}
	goType := reflect.TypeOf(config.NewFunc())
	s := &Storage{
		config:      config,
		etcd:        config.Etcd,
		versioner:   config.Etcd.Versioner(),
		meter:       meter{config.GroupResource, config.Metrics},
		transformer: config.Transformer,
		goType:      goType,
		seed:        maphash.MakeSeed(),
		nests:       nests(goType.Elem()),
		indexes:     indexesOf(config.Indexers),
		told:        newTold(),
		ready:       make(chan struct{}),
		warmAfter:   warmAfter,
		warmed:      make(chan struct{}),
		ended:       make(chan struct{}),
	}
	if s.transformer == nil {
		s.transformer = identity.NewEncryptCheckTransformer()
	}
	config.Store.Size, config.Store.Slim, config.Store.Attributes = size, s.slim, s.attributesOf
	s.store = store.New(config.Store)
	var err error
	s.source, err = etcd.New(config.Client, etcd.Options{Prefix: config.root(), Accept: s.accept, Decode: s.take, Past: config.Past})
	return s, err
}

// Run follows etcd until ctx is done, or until the store can't be trusted any more.
// It is called once.
func (s *Storage) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.life = ctx
	s.mu.Unlock()
	defer close(s.ended)
	begun := time.Now()
	target := metered{s.store, s.meter}
	if _, err := s.source.Seed(ctx, target, history); err != nil {
		klog.V(2).InfoS("Storage begins without history", "resource", s.config.GroupResource, "reason", err)
	}
	var started sync.WaitGroup
	var failed error
	started.Go(func() {
		if s.catchUp(ctx, begun); !s.caughtUp() {
			return
		}
		if failed = s.warm(ctx); failed != nil {
			cancel()
		}
	})
	err := reflector.New(s.source, target, reflector.Options{StartupDeadline: -1, Observe: s.observe}).Run(ctx)
	cancel()
	s.finish(err)
	started.Wait()
	if failed != nil {
		err = errors.Join(failed, err)
		s.finish(err)
	}
	return err
}

// accept ignores a key that is not of the resource's form, whoever has put it there: it is
// no object of any namespace.
func (s *Storage) accept(key keepwatch.Key) bool {
	if s.config.fits(key) {
		return true
	}
	s.meter.ignored()
	s.stray.Do(func() {
		klog.ErrorS(nil, "A key in etcd is no object's and is ignored, as others of that kind will be without a word",
			"resource", s.config.GroupResource, "key", s.config.root()+key.String())
	})
	return false
}

// finish says why nobody feeds the store any more.
func (s *Storage) finish(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = why
}

// observe logs failures, and counts those that end in a new list: these are always logged.
func (s *Storage) observe(n reflector.Notice) {
	if n.Failure == nil {
		return
	}
	if n.Verdict == reflector.RelistNow {
		s.meter.relisted(n.Failure.Kind)
		klog.ErrorS(n.Failure, "Storage lists etcd again", "resource", s.config.GroupResource,
			"reason", n.Failure.Kind, "wait", n.Wait, "revision", n.Held)
		return
	}
	klog.V(2).InfoS("Storage follows etcd", "resource", s.config.GroupResource,
		"state", n.State, "failure", n.Failure.Kind, "err", n.Failure, "verdict", n.Verdict, "revision", n.Held)
}

// living is the context of whatever Run does.
func (s *Storage) living() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

// ReadinessCheck fails before the store has caught up with etcd, and after Run.
func (s *Storage) ReadinessCheck() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return fmt.Errorf("%w: %w", apistorage.ErrStorageNotReady, s.end)
	}
	if !s.caughtUp() {
		return apistorage.ErrStorageNotReady
	}
	return nil
}

// Versioner is etcd3's.
func (s *Storage) Versioner() apistorage.Versioner { return s.versioner }

// GetCurrentResourceVersion is etcd's newest revision, by a quorum read that began
// after the call.
func (s *Storage) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	newest, err := s.source.Newest(ctx)
	return uint64(newest), err
}

// RequestWatchProgress makes the store hold what etcd has now, of which watches
// with ProgressNotify are told.
func (s *Storage) RequestWatchProgress(ctx context.Context) error {
	_, err := s.source.Newest(ctx)
	return err
}

// CompactRevision is what etcd3 has learned of compactions.
func (s *Storage) CompactRevision() int64 { return s.etcd.CompactRevision() }

// EnableResourceSizeEstimation does nothing: Stats knows the sizes.
func (s *Storage) EnableResourceSizeEstimation(apistorage.KeysFunc) error { return nil }

// Store returns what the storage reads from. Its objects are for Read.
func (s *Storage) Store() View { return View{s.store} }

// View is the store of a storage for readers: only the storage writes to it.
type View struct{ store *store.Store }

// Snapshot returns the newest state. It does not block.
func (v View) Snapshot() *store.Snapshot { return v.store.Snapshot() }

// Held returns the newest revision; zero before the first list, and while a list has to
// come before any history.
func (v View) Held() keepwatch.Revision { return v.store.Held() }

// Bounds returns the revisions from which a watch can resume: exactly since history, by a
// difference since difference.
func (v View) Bounds() (history, difference keepwatch.Revision) { return v.store.Bounds() }

// ResourcePrefix is before the keys of requests: "/pods".
func (s *Storage) ResourcePrefix() string { return strings.TrimSuffix(s.config.ResourcePrefix, "/") }

// Warmed is closed when what the storage read at its start is decoded and indexed,
// which is some time behind its readiness: it is done as nobody waits for it.
func (s *Storage) Warmed() <-chan struct{} { return s.warmed }

// Ended is closed when Run has ended.
func (s *Storage) Ended() <-chan struct{} { return s.ended }

// Marker is what a bookmark shows: an object of the resource's type that has a
// revision and nothing else, but an annotation where the state ends that a feed began
// with.
func (s *Storage) Marker(e Event) (runtime.Object, error) {
	o := s.config.NewFunc()
	err := s.versioner.UpdateObject(o, uint64(e.Revision))
	if err == nil && e.InitialEnd {
		err = apistorage.AnnotateInitialEventsEndBookmark(o)
	}
	return o, err
}
