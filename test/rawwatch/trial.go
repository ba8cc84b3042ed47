package rawwatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/history"
	"github.com/keepwatch/keepwatch/test/load"
)

const (
	// watchers is how many Start starts.
	watchers     = 50
	pollInterval = 20 * time.Millisecond
)

// errOver is why watchers end.
var errOver = errors.New("the trial is over")

// Trial is watchers and writers on a server while the test disturbs it.
type Trial struct {
	t      *testing.T
	config *rest.Config
	fronts []*rest.Config // where watchers watch
	lists  string         // where they list; empty: where they watch
	etcd   *clientv3.Client
	churns []*churn

	watchers  []*watcher
	histories map[string]*history.Reader // by kind
	start     keepwatch.Revision
	seed      uint64
	last      map[string][]*history.Object // by kind: what each view ends with

	stopWriters, stopWatchers func()
}

// Start starts a trial on a server and its etcd, with watchers of every view and with
// writers.
func Start(t *testing.T, config *rest.Config, etcd *clientv3.Client) *Trial {
	t.Helper()
	return start(t, config, etcd, []*rest.Config{config}, watchers, views, func() {})
}

// StartBehind starts a trial whose watchers watch through several servers that are in front of one, each connection of
// a watcher at the next one. Half of the writers write there, too. The views are more than those of Start: metadata
// alone, streaming lists, no bookmarks, and selectors of the namespace. It calls ready when the resources exist; the
// servers must know all that is written after it returns.
func StartBehind(t *testing.T, config *rest.Config, etcd *clientv3.Client, fronts []*rest.Config, watchers int,
	ready func()) *Trial {
	t.Helper()
	return start(t, config, etcd, fronts, watchers, moreViews, ready)
}

// Record starts a trial whose writers write to what something records. Its watchers are those of [Trial.Replay].
func Record(t *testing.T, config *rest.Config, etcd *clientv3.Client, ready func()) *Trial {
	t.Helper()
	return start(t, config, etcd, nil, 0, nil, ready)
}

func start(t *testing.T, config *rest.Config, etcd *clientv3.Client, fronts []*rest.Config, watchers int, views []view,
	ready func()) *Trial {
	t.Helper()
	trial := &Trial{t: t, config: config, fronts: fronts, etcd: etcd, histories: map[string]*history.Reader{}}
	for _, to := range append([]*rest.Config{config}, fronts...) {
		c, err := newChurn(to)
		if err != nil {
			t.Fatal(err)
		}
		trial.churns = append(trial.churns, c)
	}
	trial.prepare()
	ready()
	trial.start = trial.newest()
	seed := rand.Uint64()
	t.Logf("seed of the writers and the views %d; watchers begin at %d", seed, trial.start)
	for _, r := range resources {
		trial.histories[r.kind] = &history.Reader{Prefix: r.prefix}
	}
	trial.seed = seed
	if watchers > 0 {
		trial.watch(watchers, views)
	}
	trial.write(seed)
	return trial
}

// prepare creates the namespaces and the definition.
func (t *Trial) prepare() {
	t.t.Helper()
	client, err := kubernetes.NewForConfig(t.config)
	if err != nil {
		t.t.Fatal(err)
	}
	for _, name := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().Namespaces().Create(t.t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.t.Fatal(err)
		}
	}
	if err := load.DefineWidgets(t.t.Context(), t.config); err != nil {
		t.t.Fatal(err)
	}
}

// newest is etcd's newest revision.
func (t *Trial) newest() keepwatch.Revision {
	t.t.Helper()
	answer, err := t.etcd.Get(t.t.Context(), "any", clientv3.WithCountOnly())
	if err != nil {
		t.t.Fatal(err)
	}
	return keepwatch.Revision(answer.Header.Revision)
}

// watch starts the watchers of views in a random order, every other one over HTTP/1.1.
func (t *Trial) watch(watchers int, views []view) {
	t.t.Helper()
	views = slices.Clone(views)
	rand.New(rand.NewPCG(t.seed, writers)).Shuffle(len(views), func(i, j int) { views[i], views[j] = views[j], views[i] })
	ctx, cancel := context.WithCancelCause(t.t.Context())
	var running sync.WaitGroup
	t.stopWatchers = sync.OnceFunc(func() {
		cancel(errOver)
		running.Wait()
	})
	t.t.Cleanup(t.stopWatchers)
	var clients [2]*http.Client
	for i := range clients {
		client, err := httpClient(t.fronts[0], i == 1)
		if err != nil {
			t.t.Fatal(err)
		}
		clients[i] = client
		t.t.Cleanup(client.CloseIdleConnections)
	}
	for i := range watchers {
		w := &watcher{view: views[i%len(views)], client: clients[i%len(clients)], cursor: t.start, lists: t.lists}
		for k := range t.fronts {
			w.hosts = append(w.hosts, t.fronts[(i+k)%len(t.fronts)].Host)
		}
		if w.initial {
			w.cursor = 0
		}
		w.start = w.cursor
		t.watchers = append(t.watchers, w)
		running.Go(func() { w.run(ctx) })
	}
}

// httpClient is a client of its own connections.
func httpClient(config *rest.Config, http1 bool) (*http.Client, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: !http1}
	round, err := rest.HTTPWrappersForConfig(config, transport)
	return &http.Client{Transport: round}, err
}

func (t *Trial) write(seed uint64) {
	ctx, cancel := context.WithCancel(t.t.Context())
	var running sync.WaitGroup
	for i := range writers {
		to := t.churns[0]
		if i%2 == 1 {
			to = t.churns[i/2%len(t.churns)]
		}
		running.Go(func() { to.write(ctx, i, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	t.stopWriters = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.t.Cleanup(t.stopWriters)
}

// Written waits until the server has acknowledged n more writes.
func (t *Trial) Written(n int64) {
	t.t.Helper()
	goal := t.acknowledged() + n
	t.until(fmt.Sprintf("%d more writes", n), func() (bool, error) { return t.acknowledged() >= goal, nil })
}

func (t *Trial) acknowledged() (n int64) {
	for _, c := range t.churns {
		n += c.acknowledged.Load()
	}
	return n
}

func (t *Trial) refused() (n int64) {
	for _, c := range t.churns {
		n += c.refused.Load()
	}
	return n
}

// Remember reads etcd's history up to now, so that it may be compacted. Nothing may
// be written meanwhile that is to be judged.
func (t *Trial) RecordRevision() (newest int64) {
	t.t.Helper()
	now := t.newest()
	for _, h := range t.histories {
		if err := h.ReadTo(t.t.Context(), t.etcd, now); err != nil {
			t.t.Fatal(err)
		}
	}
	return int64(now)
}

// Start is the revision before the first write.
func (t *Trial) Start() keepwatch.Revision { return t.start }

// ConfigMaps returns the writes of a namespace's ConfigMaps so far.
func (t *Trial) ConfigMaps(namespace string) (all []check.Write) {
	t.t.Helper()
	t.RecordRevision()
	for _, w := range t.histories[configMaps.kind].Writes {
		if w.Key.Namespace == namespace {
			all = append(all, w)
		}
	}
	return all
}

func (t *Trial) until(what string, done func() (bool, error)) {
	t.t.Helper()
	ctx, cancel := context.WithTimeout(t.t.Context(), await.Deadline)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		ok, err := done()
		if err != nil {
			t.t.Fatal(err)
		}
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.t.Fatalf("no %s within %v", what, await.Deadline)
		}
	}
}

// Judge stops the writes, waits until every watcher has received the last ones, and judges
// all transcripts.
func (t *Trial) Judge() {
	t.t.Helper()
	t.End()
	t.judgeWatchers()
}

// End stops the writes, and writes the last ones.
func (t *Trial) End() {
	t.t.Helper()
	t.stopWriters()
	t.last = map[string][]*history.Object{}
	for _, r := range resources {
		for _, namespace := range namespaces {
			t.last[r.kind] = append(t.last[r.kind], t.final(r, namespace))
		}
	}
}

// Replay judges what was recorded of a trial that has ended: watchers of the views that JSON has begin at a revision,
// at servers that continue there. They list at another address.
func (t *Trial) Replay(from keepwatch.Revision, watchers int, fronts []*rest.Config, lists *rest.Config) {
	t.t.Helper()
	t.start, t.fronts, t.lists, t.watchers = from, fronts, lists.Host, nil
	t.watch(watchers, replayedViews)
	t.judgeWatchers()
}

// judgeWatchers waits until every watcher has received the last writes, and judges all transcripts.
func (t *Trial) judgeWatchers() {
	t.t.Helper()
	calm := check.Calm{At: time.Now(), Within: await.Deadline}
	for _, w := range t.watchers {
		goal, match := keepwatch.Revision(0), w.filter()
		for _, o := range t.last[w.kind] {
			if match(o) {
				goal = max(goal, o.Revision())
			}
		}
		t.until(fmt.Sprintf("event %d for %s", goal, w.view), func() (bool, error) { return w.reached(goal) })
	}
	for _, w := range t.watchers {
		shown, err := w.list(t.t.Context())
		if err != nil {
			t.t.Error(err)
		}
		w.mu.Lock()
		w.flush()
		w.record(shown)
		w.mu.Unlock()
	}
	t.stopWatchers()
	// The server compacts etcd by a write: a bookmark may state a revision behind the trial's last write.
	t.judge(keepwatch.Revision(t.RecordRevision()), calm)
}

// final replaces the first item of a namespace, which each view has. Interrupted writes
// may still be in flight, so it repeats this until the replacement remains.
func (t *Trial) final(r resource, namespace string) (o *history.Object) {
	t.t.Helper()
	client := t.churns[0].client.Resource(r.GroupVersionResource).Namespace(namespace)
	t.until("last write", func() (bool, error) {
		err := client.Delete(t.t.Context(), itemName(0), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, nil
		}
		made, err := client.Create(t.t.Context(), item(r, namespace, itemName(0), "red"), metav1.CreateOptions{})
		if err != nil {
			return false, nil
		}
		raw, err := json.Marshal(made)
		if err == nil {
			o, err = history.Parse(raw, 0)
		}
		return true, err
	})
	return o
}

// list is the view as a LIST shows it.
func (w *watcher) list(ctx context.Context) (check.Shown, error) {
	response, err := w.get(ctx, cmp.Or(w.lists, w.host()), w.url(nil), strings.Replace(w.unencoded().accept(),
		"PartialObjectMetadata", "PartialObjectMetadataList", 1))
	if err != nil {
		return check.Shown{}, err
	}
	defer response.Body.Close()
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []json.RawMessage
	}
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return check.Shown{}, err
	}
	number, err := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return check.Shown{}, fmt.Errorf("list of %s, status %s: %w", w.view, response.Status, err)
	}
	shown := check.Shown{Revision: keepwatch.Revision(number)}
	for _, raw := range list.Items {
		o, err := history.Parse(raw, 0)
		if err != nil {
			return check.Shown{}, err
		}
		shown.Objects = append(shown.Objects, o)
	}
	return shown, nil
}

// judge judges each transcript by the promises.
func (t *Trial) judge(newest keepwatch.Revision, calm check.Calm) {
	t.t.Helper()
	planted := map[string]int{}
	type contents struct {
		kind     string
		metadata bool
	}
	histories, events, resumed := map[contents]check.History{}, 0, 0
	for kind, h := range t.histories {
		histories[contents{kind, false}], histories[contents{kind, true}] = h.All(newest), h.Metadata(newest)
		t.t.Logf("%d writes of %s", len(h.Writes), kind)
	}
	for i, w := range t.watchers {
		if w.failure != nil {
			t.t.Errorf("watcher %d of %s gave up: %v", i, w.view, w.failure)
		}
		resumed += w.watches - 1
		for _, r := range w.records {
			if r, ok := r.(check.Received); ok {
				if batch, ok := r.Delivery.(keepwatch.Batch); ok {
					events += len(batch.Changes)
				}
			}
		}
		of := histories[contents{w.kind, w.metadata}]
		transcript := check.Transcript{From: w.start, Records: w.records, Over: true, Calm: &calm}
		violations := check.Judge(of, w.filter(), transcript)
		for _, v := range violations[:min(3, len(violations))] {
			t.t.Errorf("watcher %d of %s: %v", i, w.view, v)
		}
		for name, mutant := range mutants(transcript, i) {
			if planted[name]++; len(check.Judge(of, w.filter(), mutant)) == len(violations) {
				t.t.Errorf("watcher %d of %s: %s is not noticed", i, w.view, name)
			}
		}
	}
	t.t.Logf("planted and noticed: %v", planted)
	t.t.Logf("%d writes acknowledged and %d refused; %d watchers received %d events and resumed %d times, without a list",
		t.acknowledged(), t.refused(), len(t.watchers), events, resumed)
}
