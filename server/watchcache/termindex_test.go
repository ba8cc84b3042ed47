package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/component-base/metrics"
	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// wall and color are a widget's field and label that the selectors of these tests name.
func wallAttributes(o runtime.Object) (labels.Set, fields.Set, error) {
	label, field, err := apistorage.DefaultNamespaceScopedAttr(o)
	if wall, ok := label["wall"]; ok {
		field["wall"] = wall
	}
	return label, field, err
}

// indexedWorld is a rig with widgets in some namespaces.
type indexedWorld struct {
	*rig
	registry metrics.KubeRegistry
	locked   atomic.Bool // no object can be decrypted
}

func newIndexedWorld(t testing.TB) *indexedWorld {
	t.Helper()
	w := &indexedWorld{registry: metrics.NewKubeRegistry()}
	c := config()
	c.GetAttrs, c.Metrics = wallAttributes, watchcache.NewMetrics(w.registry)
	c.Decrypt = func(_ context.Context, _ keepwatch.Key, value []byte) ([]byte, error) {
		if w.locked.Load() {
			return nil, errors.New("the key server is unavailable")
		}
		return value, nil
	}
	w.rig = cacheOf(t, c)
	w.WarmAfter(0)
	w.LeastRead(30)
	w.start()
	<-w.Warmed()
	return w
}

// paint writes a widget, whose labels are missing where a value is "-".
func (w *indexedWorld) paint(key keepwatch.Key, color, wall string) keepwatch.Revision {
	text := ""
	for name, value := range map[string]string{"color": color, "wall": wall} {
		if value != "-" {
			text += fmt.Sprintf(",%q:%q", name, value)
		}
	}
	if text == "" {
		text = ","
	}
	return w.source.writeAt(key, fmt.Appendf(nil,
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":%q,"name":%q,"uid":"u","labels":{%s}}}`,
		key.Namespace, key.Name, text[1:]))
}

func selecting(label, field string) apistorage.ListOptions {
	o := apistorage.ListOptions{Recursive: true, Predicate: apistorage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.ParseSelectorOrDie(field), GetAttrs: wallAttributes,
	}}
	if label != "" {
		var err error
		if o.Predicate.Label, err = labels.Parse(label); err != nil {
			panic(err)
		}
	}
	return o
}

// describe prints all that a response has of a result, and the objects by their identity.
func describe(a watchcache.Answer) string {
	if a.Err != nil {
		return a.Err.Error()
	}
	remaining := "unknown"
	if a.Remaining != nil {
		remaining = fmt.Sprint(*a.Remaining)
	}
	text := fmt.Sprintf("at %d continue %q remaining %s shard %q\n", a.Revision, a.Continue, remaining, a.Shard)
	for o := range a.All() {
		text += fmt.Sprintf("%v at %d %p\n", o.Key(), o.Revision(), o)
	}
	return text
}

// failing fails a test from any goroutine.
type failing struct{ testing.TB }

func (f failing) Fatalf(format string, args ...any) { f.Errorf(format, args...) }

// compare lists all pages of a list twice, by an index if there is one, and by a scan. It reports whether an index
// helped.
func (w *indexedWorld) compare(
	t interface{ Fatalf(string, ...any) }, key string, o apistorage.ListOptions, within *watchcache.Namespaces,
) (indexed bool) {
	for {
		list, scan, byIndex, err := w.Twins(w.t.Context(), key, o, within)
		if err != nil {
			return indexed // neither has an answer
		}
		if got, want := describe(list), describe(scan); got != want {
			t.Fatalf("%s %q %q limit %d, by an index %t: %s\nthe scan: %s",
				key, o.Predicate.Label, o.Predicate.Field, o.Predicate.Limit, byIndex, got, want)
		}
		indexed = indexed || byIndex
		if scan.Err != nil || scan.Continue == "" {
			return indexed
		}
		o.Predicate.Continue, o.ResourceVersion, o.ResourceVersionMatch = scan.Continue, "", ""
	}
}

// Whatever is written, listed again, unreadable or indexed, and whenever: a list by an index answers what a scan of
// its state answers, with its pages, at each revision and in each scope.
func TestTermIndexesAnswerAsScansDo(t *testing.T) {
	helped := map[bool]int{}
	rapid.Check(t, func(rt *rapid.T) {
		w := newIndexedWorld(t)
		w.LeastRead(math.MaxInt)
		defer w.cancel()
		terms := []string{"label:color", "label:wall", "field:wall"}
		value := rapid.SampledFrom([]string{"-", "", "red", "blue", "green", "pink"})
		selector := rapid.SampledFrom([]string{
			"", "color=red", "color==blue", "color in (pink)", "color=",
			"wall=red,color=blue", "color in (red,blue)", "color", "!color", "color!=red,wall=pink",
		})
		keys := rapid.Custom(func(t *rapid.T) keepwatch.Key {
			return keepwatch.Key{
				Namespace: rapid.SampledFrom([]string{"a", "a-b", "ab", "b"}).Draw(t, "namespace"),
				Name:      fmt.Sprintf("w-%02d", rapid.IntRange(0, 30).Draw(t, "name")),
			}
		})
		newest := keepwatch.Revision(1)
		write := func(t *rapid.T) {
			for range rapid.IntRange(1, 30).Draw(t, "n") {
				newest = w.paint(keys.Draw(t, "key"), value.Draw(t, "color"), value.Draw(t, "wall"))
			}
		}
		write(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"write":  write,
			"garble": func(t *rapid.T) { newest = w.source.writeAt(keys.Draw(t, "key"), []byte("{")) },
			"delete": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				if w.source.has(key) {
					newest = w.source.removeAt(key)
				}
			},
			"index": func(t *rapid.T) { w.AddTermIndex(rapid.SampledFrom(terms).Draw(t, "term"), time.Now()) },
			"drop":  func(*rapid.T) { w.SweepTermIndexes(time.Now().Add(watchcache.TermIndexUnused)) },
			"": func(t *rapid.T) {
				if err := w.WaitForRevision(w.t.Context(), newest); err != nil {
					t.Fatalf("%v", err)
				}
				field := rapid.SampledFrom([]string{"", "", "wall=red", "wall=", "wall!=pink"})
				o := selecting(selector.Draw(t, "labels"), field.Draw(t, "fields"))
				o.Predicate.Limit = int64(rapid.IntRange(0, 4).Draw(t, "limit"))
				if rapid.Bool().Draw(t, "past") {
					o = at(newest-keepwatch.Revision(rapid.IntRange(0, int(min(newest-2, 20))).Draw(t, "back")), o)
					o.ResourceVersionMatch = "Exact"
				}
				var within *watchcache.Namespaces
				if rapid.IntRange(0, 3).Draw(t, "view") == 0 {
					within = watchcache.NewNamespaces(map[string]keepwatch.UID{"a-b": "1", "b": "2"}, false)
				}
				scope := rapid.SampledFrom([]string{"/widgets/", "/widgets/a/", "/widgets/a-b/"}).Draw(t, "scope")
				helped[w.compare(t, scope, o, within)]++
			},
			"lock": func(*rapid.T) { w.locked.Store(!w.locked.Load()) },
		})
	})
	if helped[true] == 0 || helped[false] == 0 {
		t.Errorf("an index helped in %d lists, and in %d none did", helped[true], helped[false])
	}
}

// Lists that require a value again and again get an index, beside a writer, and what they answer does not change with
// it. One that is not used is dropped.
func TestTermIndexesAreEarned(t *testing.T) {
	w := newIndexedWorld(t)
	key := func(i int) keepwatch.Key {
		return keepwatch.Key{Namespace: fmt.Sprint("n-", i%200%3), Name: fmt.Sprintf("w-%03d", i%200)}
	}
	for i := range 200 {
		w.paint(key(i), []string{"red", "blue", "green", "pink", "gray", "gold"}[i%6], "-")
	}
	stop, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				at := w.paint(key(i*7), []string{"red", "blue", "green", "pink", "gray", "gold"}[i%6], "-")
				if err := w.WaitForRevision(t.Context(), at); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for _, o := range []apistorage.ListOptions{selecting("color=red", ""), selecting("color in (blue)", "")} {
		done.Go(func() {
			for o.Predicate.Limit = 0; ; o.Predicate.Limit = (o.Predicate.Limit + 1) % 3 {
				select {
				case <-stop:
					return
				default:
					w.compare(failing{t}, "/widgets/", o, nil)
				}
			}
		})
	}
	w.eventually("an index is used", func() bool {
		return w.metric("keepwatch_selective_lists_total", "by", "index") > 0 && w.metric("keepwatch_selector_indexes") == 1
	})
	close(stop)
	done.Wait()
	if bytes := w.metric("keepwatch_selector_indexes_bytes"); bytes != 200*watchcache.PostingBytes {
		t.Errorf("the index occupies %v bytes", bytes)
	}
	w.cancel()
	if err := <-w.ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	n, bytes := w.metric("keepwatch_selector_indexes"), w.metric("keepwatch_selector_indexes_bytes")
	if n != 0 || bytes != 0 {
		t.Errorf("%v indexes of %v bytes are counted after the end", n, bytes)
	}
}

// Indexes are bounded in number. Those that no list uses are dropped, and one that was refused may come then.
func TestTermIndexesAreBounded(t *testing.T) {
	w := newIndexedWorld(t)
	w.LeastRead(math.MaxInt)
	var newest keepwatch.Revision
	for i := range 20 {
		color := []string{"red", "blue", "green", "pink", "gray"}[i%5]
		newest = w.paint(keepwatch.Key{Namespace: "n", Name: fmt.Sprint("w-", i)}, color, "-")
	}
	if err := w.WaitForRevision(t.Context(), newest); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	w.AddTermIndex("label:color", now.Add(-watchcache.TermIndexUnused/2))
	for i := range watchcache.MaxTermIndexes {
		w.AddTermIndex(fmt.Sprint("label:", i), now.Add(-watchcache.TermIndexUnused/2))
	}
	counts := func(count, postings int) {
		t.Helper()
		n, bytes := w.metric("keepwatch_selector_indexes"), w.metric("keepwatch_selector_indexes_bytes")
		if n != float64(count) || bytes != float64(postings*watchcache.PostingBytes) {
			t.Errorf("%v indexes of %v bytes, want %d of %d objects", n, bytes, count, postings)
		}
	}
	counts(watchcache.MaxTermIndexes, 20)
	if !w.compare(t, "/widgets/", selecting("color=red", ""), nil) {
		t.Error("the index is not used")
	}
	w.SweepTermIndexes(now.Add(watchcache.TermIndexUnused / 2))
	counts(1, 20)
	w.AddTermIndex("field:wall", now)
	counts(2, 40)
	w.SweepTermIndexes(time.Now().Add(watchcache.TermIndexUnused))
	counts(0, 0)
	if w.compare(t, "/widgets/", selecting("color=red", ""), nil) {
		t.Error("an index was used that was dropped")
	}
}

func (w *indexedWorld) metric(name string, labels ...string) (sum float64) {
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Error(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			has := len(labels) == 0
			for _, l := range m.GetLabel() {
				has = has || l.GetName() == labels[0] && l.GetValue() == labels[1]
			}
			if family.GetName() == name && has {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// What a list looks at are the objects of its namespace, or those that an index finds there.
func TestCost(t *testing.T) {
	w := newIndexedWorld(t)
	w.LeastRead(math.MaxInt)
	var newest keepwatch.Revision
	for i := range 60 {
		color := "blue"
		if i%10 == 0 {
			color = "red"
		}
		newest = w.paint(keepwatch.Key{Namespace: []string{"a", "b"}[i%2], Name: fmt.Sprint("w-", i)}, color, "-")
	}
	if err := w.WaitForRevision(t.Context(), newest); err != nil {
		t.Fatal(err)
	}
	costs := func() (costs [4]int64) {
		for i, labels := range []string{"", "color=red", "color=blue", "wall=x"} {
			costs[i] = w.Cost("", nil, selecting(labels, "").Predicate)
		}
		return costs
	}
	if got := costs(); got != [4]int64{60, 60, 60, 60} {
		t.Errorf("without an index lists look at %v", got)
	}
	w.AddTermIndex("label:color", time.Now())
	if got := costs(); got != [4]int64{60, 6, 60, 60} { // blue is not rare enough
		t.Errorf("with an index lists look at %v", got)
	}
	all, red := w.Cost("a", nil, selecting("", "").Predicate), w.Cost("b", nil, selecting("color=red", "").Predicate)
	if all != 30 || red != 0 {
		t.Errorf("lists of one namespace look at %d and %d", all, red)
	}
}

// What no object can have costs nothing: a name or a namespace that there cannot be, two of them, or the namespace of
// another list. A list and a watch of it look at nothing: of an object that cannot be read, either would fail.
func TestWhatNoObjectHas(t *testing.T) {
	w := newIndexedWorld(t)
	w.LeastRead(math.MaxInt)
	newest := w.paint(keepwatch.Key{Namespace: "a", Name: "w"}, "red", "-")
	w.locked.Store(true)
	newest = max(newest, w.paint(keepwatch.Key{Namespace: "a", Name: "odd"}, "red", "-"))
	if err := w.WaitForRevision(t.Context(), newest); err != nil {
		t.Fatal(err)
	}
	for field, empty := range map[string]bool{
		"metadata.name=w": false, "metadata.namespace=a": false, "metadata.name!=w": false, "metadata.namespace!=A_B": false,
		"metadata.name=w,metadata.name=w": false, "metadata.name=..": true, "metadata.name=a/b": true, "metadata.name=": true,
		"metadata.namespace=A_B": true, "metadata.namespace=": true, "metadata.name=v,metadata.name=w": true,
		"metadata.namespace=a,metadata.namespace=b": true, "metadata.name!=w,metadata.namespace==A_B": true,
	} {
		o := selecting("", field)
		if cost := w.Cost("", nil, o.Predicate); (cost == 0) != empty {
			t.Errorf("%s: a list looks at %d objects", field, cost)
		}
		list, err := w.List(t.Context(), "/widgets/", o)
		if (err == nil) != empty || err == nil && list.Len() > 0 {
			t.Errorf("%s: a list has %v, %v", field, list, err)
		}
		watch, err := w.Watch(t.Context(), "/widgets/", o)
		if err != nil {
			t.Fatal(err)
		}
		if events, _, err := watch.TryNext(); (err == nil) != empty || err == nil && len(events) > 0 {
			t.Errorf("%s: a watch has %v, %v", field, events, err)
		}
	}
	for namespace, want := range map[string]bool{"a": false, "b": true} {
		if cost := w.Cost(namespace, nil, selecting("", "metadata.namespace=a").Predicate); (cost == 0) != want {
			t.Errorf("a list in %s looks at %d objects", namespace, cost)
		}
	}
	if cost := w.Cost("b", nil, selecting("", "metadata.namespace=b").Predicate); cost != 0 {
		t.Errorf("an empty namespace has %d objects", cost)
	}
}

// An index has the objects of all namespaces, and the list of a view by it those of its own.
func TestIndexesAreNotSharedByViews(t *testing.T) {
	w := newIndexedWorld(t)
	w.LeastRead(math.MaxInt)
	var newest keepwatch.Revision
	for i := range 60 {
		newest = w.paint(keepwatch.Key{Namespace: []string{"a", "a-b", "b"}[i%3], Name: fmt.Sprint("w-", i)},
			[]string{"red", "blue", "green", "pink"}[i%4], "-")
	}
	if err := w.WaitForRevision(t.Context(), newest); err != nil {
		t.Fatal(err)
	}
	w.AddTermIndex("label:color", time.Now())
	for _, namespaces := range [][]string{{"b"}, {"a", "b"}, {"a-b"}, {}} {
		uids := map[string]keepwatch.UID{}
		for _, namespace := range namespaces {
			uids[namespace] = "1"
		}
		before := w.metric("keepwatch_selective_lists_total", "by", "index")
		o := selecting("color=red", "")
		o.Recursive = true
		list, err := w.ListIn(t.Context(), "/widgets/", o, watchcache.NewNamespaces(uids, false))
		if err != nil {
			t.Fatal(err)
		}
		for o := range list.All() {
			if !slices.Contains(namespaces, o.Key().Namespace) {
				t.Errorf("a view of %v has %s", namespaces, o.Key())
			}
		}
		if got := list.Len(); got != 5*len(namespaces) {
			t.Errorf("a view of %v has %d objects", namespaces, got)
		}
		if w.metric("keepwatch_selective_lists_total", "by", "index") == before {
			t.Errorf("a view of %v is listed by no index", namespaces)
		}
	}
}
