package storage_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// conformance has k8s.io/apiserver's own tests of a storage.Interface. A compaction or a change of the
// transformer includes a restart of the storage: a running storage uses objects and history that it has
// cached, which these tests do not expect.
var conformance = map[string]struct {
	options options
	run     func(context.Context, *testing.T, *rig)
}{
	"RunTestCreate": {run: func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestCreate(ctx, t, r, inEtcd(r))
	}},
	"RunTestCreateWithTTL":      {run: timeToLive(storagetesting.RunTestCreateWithTTL)},
	"RunTestCreateWithKeyExist": {run: plain(storagetesting.RunTestCreateWithKeyExist)},
	"RunTestGet": {run: func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestGet(ctx, t, leased{r})
	}},
	"RunTestUnconditionalDelete":  {run: plain(storagetesting.RunTestUnconditionalDelete)},
	"RunTestConditionalDelete":    {run: plain(storagetesting.RunTestConditionalDelete)},
	"RunTestDeleteWithSuggestion": {run: plain(storagetesting.RunTestDeleteWithSuggestion)},
	"RunTestDeleteWithSuggestionAndConflict": {
		run: plain(storagetesting.RunTestDeleteWithSuggestionAndConflict)},
	"RunTestDeleteWithConflict": {run: plain(storagetesting.RunTestDeleteWithConflict)},
	"RunTestDeleteWithSuggestionOfDeletedObject": {
		run: plain(storagetesting.RunTestDeleteWithSuggestionOfDeletedObject)},
	"RunTestValidateDeletionWithSuggestion": {
		run: plain(storagetesting.RunTestValidateDeletionWithSuggestion)},
	"RunTestValidateDeletionWithOnlySuggestionValid": {
		run: plain(storagetesting.RunTestValidateDeletionWithOnlySuggestionValid)},
	"RunTestPreconditionalDeleteWithSuggestion": {
		run: plain(storagetesting.RunTestPreconditionalDeleteWithSuggestion)},
	"RunTestPreconditionalDeleteWithOnlySuggestionPass": {
		run: plain(storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass)},
	"RunTestList": {options{prefix: "/registry"}, func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestList(ctx, t, r, r.compact, true, r.etcd.Kubernetes.(*storagetesting.KubernetesRecorder))
	}},
	"RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError": {run: func(ctx context.Context, t *testing.T,
		r *rig) {
		failing := &failing{Transformer: identity.NewEncryptCheckTransformer()}
		r.transformWith(failing)
		storagetesting.RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError(ctx, t, r, failing.set)
	}},
	"RunTestDeleteExpectedTransformOrDecodeError": {run: func(ctx context.Context, t *testing.T, r *rig) {
		t.Run("transform", func(t *testing.T) {
			failing := &failing{Transformer: identity.NewEncryptCheckTransformer()}
			r.transformWith(failing)
			storagetesting.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, r, failing.set)
		})
		t.Run("decode", func(t *testing.T) {
			etcd3.TestOnlySetFatalOnDecodeError(t, false)
			failing := &failingCodec{Codec: protobufCodec()}
			r.options.codec, r.options.transformer = failing, nil
			r.restart()
			storagetesting.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, r, failing.set)
		})
	}},
	"RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError": {run: func(ctx context.Context, t *testing.T,
		r *rig) {
		storagetesting.RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError(ctx, t, r)
	}},
	"RunTestConsistentList": {run: func(ctx context.Context, t *testing.T, r *rig) {
		o := &overdue{rig: r}
		storagetesting.RunTestConsistentList(ctx, t, o, o.increaseRV, true, true, true)
	}},
	"RunTestGetListNonRecursive": {run: func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestGetListNonRecursive(ctx, t, r.increaseRV, r)
	}},
	"RunTestGetListRecursivePrefix": {run: plain(storagetesting.RunTestGetListRecursivePrefix)},
	"RunTestGetListWithErrorAggregation": {options{corruptible: true}, func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestGetListWithErrorAggregation(ctx, t, transformable{current{r}}, corruptError(t))
	}},
	"RunTestGetListWithoutErrorAggregation": {run: func(ctx context.Context, t *testing.T, r *rig) {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate,
			features.AllowUnsafeMalformedObjectDeletion, false)
		r.restart()
		storagetesting.RunTestGetListWithoutErrorAggregation(ctx, t, transformable{current{r}}, corruptError(t))
	}},
	"RunTestListContinuation": {run: pages(storagetesting.RunTestListContinuation)},
	"RunTestListPaginationRareObject": {options{clusterScoped: true}, func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestListPaginationRareObject(ctx, t, clean{r}, func(*testing.T, uint64, uint64) {})
	}},
	"RunTestListContinuationWithFilter": {run: pages(storagetesting.RunTestListContinuationWithFilter)},
	"RunTestListInconsistentContinuation": {run: func(ctx context.Context, t *testing.T, r *rig) {
		compact := r.compactOnly // pages expire with etcd's history, although the cache has it
		if r.db != nil {
			compact = r.compact
		}
		storagetesting.RunTestListInconsistentContinuation(ctx, t, current{r}, compact)
	}},
	"RunTestGuaranteedUpdate": {options{transformer: prefixed()}, func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestGuaranteedUpdate(ctx, t, transformable{current{r}}, inEtcd(r))
	}},
	"RunTestGuaranteedUpdateWithTTL": {run: timeToLive(storagetesting.RunTestGuaranteedUpdateWithTTL)},
	"RunTestGuaranteedUpdateChecksStoredData": {options{transformer: prefixed(), codec: jsonCodec()},
		func(ctx context.Context, t *testing.T, r *rig) {
			storagetesting.RunTestGuaranteedUpdateChecksStoredData(ctx, t, transformable{current{r}})
		}},
	"RunTestGuaranteedUpdateWithConflict": {run: plain(storagetesting.RunTestGuaranteedUpdateWithConflict)},
	"RunTestGuaranteedUpdateWithSuggestionAndConflict": {
		run: plain(storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict)},
	"RunTestTransformationFailure": {options{transformer: prefixed()}, func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestTransformationFailure(ctx, t, transformable{current{r}})
	}},
	"RunTestStats": {options{clusterScoped: true}, func(ctx context.Context, t *testing.T, r *rig) {
		for _, sizes := range []bool{true, false} {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.SizeBasedListCostEstimate,
				sizes)
			storagetesting.RunTestStats(ctx, t, clean{r}, r.options.codec, identity.NewEncryptCheckTransformer(), sizes)
		}
	}},
	"RunTestListPaging":          {run: plain(storagetesting.RunTestListPaging)},
	"RunTestNamespaceScopedList": {options{indexers: podIndexers}, plain(storagetesting.RunTestNamespaceScopedList)},
	"RunTestCompactRevision": {run: func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestCompactRevision(ctx, t, r, r.increaseRV, r.compact)
	}},
	"RunTestKeySchema": {run: plain(storagetesting.RunTestKeySchema)},

	"RunTestWatch":                {run: plain(storagetesting.RunTestWatch)},
	"RunTestClusterScopedWatch":   {options{clusterScoped: true}, plain(storagetesting.RunTestClusterScopedWatch)},
	"RunTestNamespaceScopedWatch": {options{indexers: podIndexers}, plain(storagetesting.RunTestNamespaceScopedWatch)},
	"RunTestDeleteTriggerWatch":   {run: plain(storagetesting.RunTestDeleteTriggerWatch)},
	"RunTestWatchFromZero": {run: func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestWatchFromZero(ctx, t, r, r.compact)
	}},
	"RunTestWatchFromNonZero": {run: plain(storagetesting.RunTestWatchFromNonZero)},
	"RunTestDelayedWatchDelivery": {run: func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestDelayedWatchDelivery(ctx, t, patient{r, full()})
	}},
	"RunTestWatchError": {options{transformer: prefixed()}, func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestWatchError(ctx, t, transformable{current{r}})
	}},
	"RunTestWatchWithUnsafeDelete": {options{corruptible: true}, func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestWatchWithUnsafeDelete(ctx, t, transformable{current{r}}, corruptError(t))
	}},
	"RunTestWatchContextCancel":                 {run: plain(storagetesting.RunTestWatchContextCancel)},
	"RunTestWatcherTimeout":                     {run: plain(storagetesting.RunTestWatcherTimeout)},
	"RunTestWatchDeleteEventObjectHaveLatestRV": {run: plain(storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV)},
	"RunTestWatchInitializationSignal": {run: func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestWatchInitializationSignal(ctx, t, patient{r, nil})
	}},
	"RunOptionalTestProgressNotify": {run: func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunOptionalTestProgressNotify(ctx, t, patient{r, progress}, r.increaseRV)
	}},
	"RunTestWatchDispatchBookmarkEvents": {run: func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, patient{r, aBookmark}, true)
	}},
	"RunTestOptionalWatchBookmarksWithCorrectResourceVersion": {run: func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion(ctx, t, upToBookmark{patient{r, nil}})
	}},
	"RunSendInitialEventsBackwardCompatibility": {run: plain(storagetesting.RunSendInitialEventsBackwardCompatibility)},
	"RunWatchSemantics": {run: func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunWatchSemantics(ctx, t, settled{patient{r, nil}})
	}},
	"RunWatchSemanticInitialEventsExtended": {run: func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunWatchSemanticInitialEventsExtended(ctx, t, settled{patient{r, nil}})
	}},
	"RunWatchListMatchSingle": {run: func(ctx context.Context, t *testing.T, r *rig) {
		storagetesting.RunWatchListMatchSingle(ctx, t, settled{patient{r, nil}})
	}},
	"RunWatchErrorIsBlockingFurtherEvents": {options{transformer: prefixed()}, func(ctx context.Context, t *testing.T,
		r *rig) {
		storagetesting.RunWatchErrorIsBlockingFurtherEvents(ctx, t, transformable{current{r}})
	}},
}

// alone has the tests that do not run in parallel: they set feature gates, which all share.
var alone = []string{
	"RunTestGetListWithoutErrorAggregation", "RunTestStats", "RunWatchSemantics",
	"RunWatchSemanticInitialEventsExtended", "RunWatchListMatchSingle", "RunTestDeleteExpectedTransformOrDecodeError",
}

// virtual has the tests that run in virtual time in memory: they wait for seconds. Subtests are not possible there.
var virtual = []string{
	"RunTestCreateWithTTL", "RunTestGuaranteedUpdateWithTTL", "RunTestDelayedWatchDelivery", "RunTestWatcherTimeout",
	"RunTestWatchInitializationSignal", "RunOptionalTestProgressNotify",
	"RunTestOptionalWatchBookmarksWithCorrectResourceVersion",
}

// timed has the tests that assert how long something takes. They run in virtual time only: what it does is above etcd.
var timed = []string{"RunTestWatcherTimeout"}

// inapplicable has the tests that can't run, and the reasons.
var inapplicable = map[string]string{
	"RunTestListResourceVersionMatch": "its transformer writes an object at each read, so that a cache which reads each write never ends; see TestListsOfOneRevisionAreEqual",
	"RunBenchmarkWriteThroughput":     "a benchmark",
	"RunBenchmarkStoreList":           "a benchmark",
	"RunBenchmarkStoreStats":          "a benchmark",
}

func TestConformance(t *testing.T) { testConformance(t, false) }

// A database in memory passes the same tests.
func TestConformanceInMemory(t *testing.T) { testConformance(t, true) }

func testConformance(t *testing.T, memory bool) {
	for name, c := range conformance {
		if !memory && slices.Contains(timed, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(alone, name) {
				t.Parallel()
			}
			c.options.memory, c.options.follows = memory, true
			run := func(t *testing.T) { c.run(context.Background(), t, newRig(t, c.options)) }
			if memory && slices.Contains(virtual, name) {
				synctest.Test(t, run)
			} else {
				run(t)
			}
		})
	}
}

// TestConformanceIsComplete fails if the library has a test that is in none of the lists.
func TestConformanceIsComplete(t *testing.T) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "k8s.io/apiserver/pkg/storage/testing").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := must(filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go")))(t)
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
	found := map[string]bool{}
	for _, f := range files {
		parsed := must(parser.ParseFile(token.NewFileSet(), f, nil, 0))(t)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Run") {
				found[f.Name.Name] = true
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("no tests in %s", dir)
	}
	for name := range found {
		_, run := conformance[name]
		if _, not := inapplicable[name]; run == not {
			t.Errorf("%s must be in exactly one of the lists", name)
		}
	}
	for name := range conformance {
		if !found[name] {
			t.Errorf("the library has no %s any more", name)
		}
	}
}

func plain(run func(context.Context, *testing.T, apistorage.Interface)) func(context.Context, *testing.T, *rig) {
	return func(ctx context.Context, t *testing.T, r *rig) { run(ctx, t, r) }
}

// timeToLive runs a test of a time to live of a second: in memory in virtual time.
func timeToLive(run func(context.Context, *testing.T, apistorage.Interface)) func(context.Context, *testing.T, *rig) {
	return func(ctx context.Context, t *testing.T, r *rig) {
		if r.db != nil {
			run(ctx, t, r)
		} else {
			run(ctx, t, leased{r})
		}
	}
}

// pages omits the check of how many objects etcd returned: none.
func pages(run func(context.Context, *testing.T, apistorage.Interface, storagetesting.CallsValidation)) func(
	context.Context, *testing.T, *rig) {
	return func(ctx context.Context, t *testing.T, r *rig) {
		run(ctx, t, r, func(*testing.T, uint64, uint64) {})
	}
}

// inEtcd checks that an object is in etcd, without its resourceVersion.
func inEtcd(r *rig) storagetesting.KeyValidation {
	return func(ctx context.Context, t *testing.T, key string) {
		answer := must(r.etcd.KV.Get(ctx, key))(t)
		if len(answer.Kvs) == 0 {
			t.Fatalf("etcd has no %s", key)
		}
		plain, _, err := r.transformer().TransformFromStorage(ctx, answer.Kvs[0].Value, value.DefaultContext(key))
		if err != nil {
			t.Fatal(err)
		}
		o := must(runtime.Decode(r.options.codec, plain))(t)
		if revision := must(r.Versioner().ObjectResourceVersion(o))(t); revision != 0 {
			t.Errorf("revision %d is stored with %s", revision, key)
		}
	}
}

func (r *rig) increaseRV(ctx context.Context, t *testing.T) int64 {
	return must(r.writeElsewhere(ctx))(t)
}

// writeElsewhere writes a key of no resource, and returns its revision.
func (r *rig) writeElsewhere(ctx context.Context) (int64, error) {
	if r.db != nil {
		elsewhere := r.db.Client("/elsewhere/").Kubernetes
		written, err := elsewhere.Get(ctx, "/elsewhere/increaseRV", kubernetes.GetOptions{})
		if err != nil {
			return 0, err
		}
		put, err := elsewhere.OptimisticPut(ctx, "/elsewhere/increaseRV", []byte("ok"), written.KV.GetModRevision(),
			kubernetes.PutOptions{})
		return put.Revision, err
	}
	put, err := r.etcd.KV.Put(ctx, "increaseRV", "ok")
	if err != nil {
		return 0, err
	}
	return put.Header.Revision, nil
}

// compact compacts as an API server does, and restarts.
func (r *rig) compact(ctx context.Context, t *testing.T, resourceVersion string) {
	r.compactOnly(ctx, t, resourceVersion)
	r.restart()
}

func (r *rig) compactOnly(ctx context.Context, t *testing.T, resourceVersion string) {
	revision := int64(must(r.Versioner().ParseResourceVersion(resourceVersion))(t))
	if r.db != nil {
		if err := r.db.Compact(keepwatch.Revision(revision)); err != nil {
			t.Fatal(err)
		}
		must(r.writeElsewhere(ctx))(t) // as the compaction of an API server does in etcd
		return
	}
	version, _, _, err := etcd3.Compact(ctx, r.etcd.Client, 0, revision)
	if err != nil {
		t.Fatal(err)
	}
	if version != 1 { // another test has compacted
		if _, _, _, err := etcd3.Compact(ctx, r.etcd.Client, version, revision); err != nil {
			t.Fatal(err)
		}
	}
	await.True(t, "the compaction is known", func() bool { return r.CompactRevision() == revision })
}

// transformable can change its transformer.
type transformable struct{ current }

func (r transformable) UpdatePrefixTransformer(change storagetesting.PrefixTransformerModifier) func() {
	r.stop() // it reads with it
	before := r.options.transformer.(*storagetesting.PrefixTransformer)
	next := *before
	r.transformWith(change(&next))
	return func() { r.transformWith(before) }
}

func (r transformable) UpdateTransformer(change storagetesting.TransformerModifier) func() {
	before := r.options.transformer
	r.transformWith(change(r.transformer()))
	return func() { r.transformWith(before) }
}

// current shows the newest state in lists at revision 0, and honours their limit, as
// etcd3 does. API servers that have a cache do neither.
type current struct{ *rig }

func (c current) GetList(ctx context.Context, key string, o apistorage.ListOptions, into runtime.Object) error {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
	return c.rig.GetList(ctx, key, o, into)
}

// overdue increases the revision only when a list must have it. The test fails if a list at revision 0
// has it, which a progress notification of etcd can cause at any time.
type overdue struct {
	*rig
	increases int
}

func (o *overdue) increaseRV(context.Context, *testing.T) int64 {
	o.increases++
	return 0 // which the test does not use
}

func (o *overdue) GetList(ctx context.Context, key string, options apistorage.ListOptions, into runtime.Object) error {
	if options.ResourceVersion != "0" {
		for ; o.increases > 0; o.increases-- {
			if _, err := o.writeElsewhere(ctx); err != nil {
				return err
			}
		}
	}
	return o.rig.GetList(ctx, key, options, into)
}

func prefixed() value.Transformer { return storagetesting.NewPrefixTransformer([]byte("test!"), false) }

// failing is a transformer that fails when the test sets it to.
type failing struct {
	value.Transformer
	now atomic.Bool
}

func (f *failing) set(fail bool) { f.now.Store(fail) }

func (f *failing) TransformFromStorage(ctx context.Context, data []byte, about value.Context) ([]byte, bool, error) {
	if f.now.Load() {
		return nil, false, errors.New("set to fail")
	}
	return f.Transformer.TransformFromStorage(ctx, data, about)
}

// failingCodec is a codec that fails when the test sets it to.
type failingCodec struct {
	runtime.Codec
	now atomic.Bool
}

func (f *failingCodec) set(fail bool) { f.now.Store(fail) }

func (f *failingCodec) Decode(data []byte, defaults *schema.GroupVersionKind,
	into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if f.now.Load() {
		return nil, nil, errors.New("set to fail")
	}
	return f.Codec.Decode(data, defaults, into)
}

// corruptError returns etcd3's error for an object that can't be decrypted.
func corruptError(t *testing.T) error {
	f := &failing{Transformer: identity.NewEncryptCheckTransformer()}
	f.set(true)
	_, _, err := etcd3.WithCorruptObjErrorHandlingTransformer(f).TransformFromStorage(t.Context(), nil,
		value.DefaultContext("key"))
	if err == nil {
		t.Fatal(fmt.Errorf("nothing is corrupt"))
	}
	return err
}
