// Package losses has the ways in which events get lost between etcd and a client,
// each made to happen between a real etcd and keepwatch serve.
package losses

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// TestLosses runs the losses that do not change the server, so they share one.
func TestLosses(t *testing.T) {
	r := newRig(t)
	for name, lose := range map[string]func(*testing.T, *rig, string){
		"deleted-behind-a-compaction":     deletedBehindACompaction,
		"recreated-behind-a-compaction":   recreatedBehindACompaction,
		"many-writes-behind-a-compaction": manyWritesBehindACompaction,
		"watch-while-cut-off":             watchWhileCutOff,
		"read-while-cut-off":              readWhileCutOff,
		"one-revision-of-many":            oneRevisionOfMany,
		"undecodable":                     undecodable,
		"slow-reader":                     slowReader,
		"end-of-initial-events":           endOfInitialEvents,
		"prefix-of-a-namespace":           prefixOfANamespace,
		"deleted-at-the-compaction":       deletedAtTheCompaction,
	} {
		t.Run(name, func(t *testing.T) { lose(t, r, r.namespace(t, name)) })
	}
}

// etcd #10681, kubernetes #76675, #111387, #123072: an object is deleted, and etcd
// compacts its history, before the server has received the deletion. Its watch receives
// the deletion with the last state, and no error.
func deletedBehindACompaction(t *testing.T, r *rig, ns string) {
	r.create(t, ns, "gone", "1")
	r.commit(t, put(t, ns, "kept", "1"))
	revision, _ := r.newest(t, ns)
	w := r.follow(t, ns, revision)
	r.behind(t, func() {
		r.commit(t, clientv3.OpDelete(key(ns, "gone")))
		r.commit(t, put(t, ns, "kept", "2"))
	})
	want := []string{"DELETED gone=1", "MODIFIED kept=2"}
	if got := w.some(t, len(want)); !slices.Equal(got, want) {
		t.Errorf("want %q, got %q", want, got)
	}
}

// A name is deleted and used again between two states, and the difference has both
// changes.
func recreatedBehindACompaction(t *testing.T, r *rig, ns string) {
	first := r.create(t, ns, "a", "first")
	revision, _ := r.newest(t, ns) // so that the server has it
	w := r.follow(t, ns, revision)
	r.behind(t, func() {
		r.commit(t, clientv3.OpDelete(key(ns, "a")))
		r.commit(t, put(t, ns, "a", "second"))
	})
	deleted, added := w.next(t), w.next(t)
	if deleted.Type != watch.Deleted || deleted.Object.(*corev1.ConfigMap).UID != first.UID {
		t.Errorf("first comes %s", describe(deleted))
	}
	if added.Type != watch.Added || added.Object.(*corev1.ConfigMap).UID != "uid-of-a" {
		t.Errorf("then comes %s", describe(added))
	}
}

// etcd #17529: the server has not read many events when etcd compacts them. The fold of
// its watch is the newest state.
func manyWritesBehindACompaction(t *testing.T, r *rig, ns string) {
	state := map[string]string{}
	for i := range 20 {
		name := fmt.Sprint("item-", i)
		r.create(t, ns, name, "first")
		state[name] = "first"
	}
	revision, _ := r.newest(t, ns)
	w := r.follow(t, ns, revision)
	r.behind(t, func() {
		for i := range 300 {
			name := fmt.Sprint("item-", i%40)
			if i%7 == 0 {
				r.commit(t, clientv3.OpDelete(key(ns, name)))
			} else {
				r.commit(t, put(t, ns, name, fmt.Sprint(i)))
			}
		}
	})
	last := r.create(t, ns, "last", "").ResourceVersion
	w.fold(t, state, last)
	if _, want := r.newest(t, ns); !maps.Equal(state, want) {
		t.Errorf("the watch leads to %v, the state is %v", state, want)
	}
}

// kubernetes #116122: a watch is opened while the server has no connection to etcd, and
// before it has read everything again.
func watchWhileCutOff(t *testing.T, r *rig, ns string) {
	made := r.create(t, ns, "a", "1")
	r.newest(t, ns) // so that the server has it
	var w follower
	r.behind(t, func() {
		r.commit(t, clientv3.OpDelete(key(ns, "a")))
		w = r.follow(t, ns, made.ResourceVersion)
	})
	w.expect(t, "DELETED "+ns+"/a=1")
}

// kubernetes #59848: a server that is behind etcd does not answer a read of the newest
// state from its cache.
func readWhileCutOff(t *testing.T, r *rig, ns string) {
	r.create(t, ns, "a", "1")
	r.newest(t, ns)
	r.wire.disconnect()
	defer r.wire.restore()
	r.commit(t, clientv3.OpDelete(key(ns, "a")))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	list, err := r.api.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
	if err == nil && len(list.Items) > 0 {
		t.Errorf("a list of the newest state shows what was deleted at %s", list.ResourceVersion)
	}
	if _, err := r.api.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		t.Errorf("a list of any state: %v", err)
	}
}

// Transactions: a watch receives all events of one revision, and a watch from that
// revision receives none of them.
func oneRevisionOfMany(t *testing.T, r *rig, ns string) {
	const many = 100
	before, _ := r.newest(t, ns)
	w := r.follow(t, ns, before)
	var puts []clientv3.Op
	for i := range many {
		puts = append(puts, put(t, ns, fmt.Sprintf("item-%03d", i), strings.Repeat("x", 10<<10)))
	}
	revision := strconv.FormatInt(r.commit(t, puts...), 10)
	for _, w := range []follower{w, r.follow(t, ns, before)} {
		for i := range many {
			o, ok := w.next(t).Object.(*corev1.ConfigMap)
			if !ok || o.ResourceVersion != revision || o.Name != fmt.Sprintf("item-%03d", i) {
				t.Fatalf("event %d of revision %s is of %+v", i, revision, o)
			}
		}
	}
	w = r.follow(t, ns, revision)
	r.create(t, ns, "next", "")
	w.expect(t, "ADDED "+ns+"/next=")
}

// kubernetes #130898: after an event that cannot be decoded a watch receives none, until
// the client lists again.
func undecodable(t *testing.T, r *rig, ns string) {
	elsewhere := r.namespace(t, ns+"-not")
	before, _ := r.newest(t, ns)
	w, other := r.follow(t, ns, before), r.follow(t, elsewhere, before)
	r.commit(t, clientv3.OpPut(key(ns, "bad"), "k8s\x00 and nothing that can be read"))
	r.commit(t, put(t, ns, "good", "1"))
	r.create(t, elsewhere, "good", "1")
	other.expect(t, "ADDED "+elsewhere+"/good=1")
	if event := w.next(t); event.Type != watch.Error {
		t.Errorf("behind what can't be read comes %s", describe(event))
	}
	if _, err := r.api.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a list leaves out what can't be read")
	}
	r.commit(t, clientv3.OpDelete(key(ns, "bad")))
	revision, state := r.newest(t, ns)
	if !maps.Equal(state, map[string]string{"good": "1"}) {
		t.Errorf("state %v", state)
	}
	w = r.follow(t, ns, revision)
	r.create(t, ns, "next", "1")
	w.expect(t, "ADDED "+ns+"/next=1")
}

// kubernetes #116903: a client that reads nothing for a while, while far more is written
// than connections buffer, receives everything afterwards.
func slowReader(t *testing.T, r *rig, ns string) {
	const writes, perWrite = 50, 50 // of 16 KiB each: 41 MB
	before, _ := r.newest(t, ns)
	slow, quick := r.follow(t, ns, before), r.follow(t, ns, before)
	for i := range writes {
		var puts []clientv3.Op
		for j := range perWrite {
			puts = append(puts, put(t, ns, fmt.Sprintf("item-%05d", i*perWrite+j), strings.Repeat("x", 16<<10)))
		}
		r.commit(t, puts...)
	}
	for _, w := range []follower{quick, slow} {
		for i := range writes * perWrite {
			o, ok := w.next(t).Object.(*corev1.ConfigMap)
			if want := fmt.Sprintf("item-%05d", i); !ok || o.Name != want {
				t.Fatalf("want %s, got %+v", want, o)
			}
		}
	}
}

// kubernetes #140890: the initial events have an end, in a namespace without
// objects too, and at a revision that was written elsewhere.
func endOfInitialEvents(t *testing.T, r *rig, ns string) {
	initial := func(o *metav1.ListOptions) {
		yes := true
		o.SendInitialEvents, o.AllowWatchBookmarks = &yes, true
		o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	isEnd := func(t *testing.T, w follower) {
		t.Helper()
		event := w.next(t)
		o, ok := event.Object.(*corev1.ConfigMap)
		if event.Type != watch.Bookmark || !ok || o.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			t.Errorf("want the end of the initial events, got %s", describe(event))
		}
	}
	for _, revision := range []string{"", "0", r.namespaceRevision(t, ns)} {
		isEnd(t, r.follow(t, ns, revision, initial))
	}
	r.create(t, ns, "a", "1")
	w := r.follow(t, ns, "", initial)
	w.expect(t, "ADDED "+ns+"/a=1")
	isEnd(t, w)
	r.create(t, ns, "b", "1")
	w.expect(t, "ADDED "+ns+"/b=1")
}

// kubernetes #25342.
func prefixOfANamespace(t *testing.T, r *rig, ns string) {
	longer := r.namespace(t, ns+"1")
	before, _ := r.newest(t, ns)
	w := r.follow(t, ns, before)
	r.create(t, longer, "a", "1")
	r.create(t, ns, "b", "1")
	w.expect(t, "ADDED "+ns+"/b=1")
	if _, state := r.newest(t, ns); len(state) != 1 {
		t.Errorf("state %v", state)
	}
}

// etcd #18089, #19179: the revision to which etcd was compacted is a deletion. A server
// that starts without more history sends it to a client from before it, or answers 410; a
// client at the deletion has missed nothing. And after 410 a list works.
func deletedAtTheCompaction(t *testing.T, r *rig, ns string) {
	made := r.create(t, ns, "a", "1")
	at := r.commit(t, clientv3.OpDelete(key(ns, "a")))
	if compacted := r.compact(t); compacted != at {
		t.Fatalf("compacted at %d, the deletion was at %d", compacted, at)
	}
	r.restart(t)
	before := r.follow(t, ns, made.ResourceVersion)
	if got := describe(before.next(t)); got != "DELETED "+ns+"/a=1" && got != "ERROR 410 Expired" {
		t.Errorf("a watcher that received everything before the deletion receives %s", got)
	}
	behind := r.follow(t, ns, strconv.FormatInt(at, 10))
	revision, state := r.newest(t, ns)
	if len(state) != 0 {
		t.Errorf("state %v", state)
	}
	anew := r.follow(t, ns, revision)
	r.create(t, ns, "b", "1")
	behind.expect(t, "ADDED "+ns+"/b=1")
	anew.expect(t, "ADDED "+ns+"/b=1")
}

// TestRestore is kubernetes #107457: etcd is restored from a backup, and revisions go
// back. No request waits for a revision of the undone history, and no watch resumes in it.
func TestRestore(t *testing.T) {
	r := newRig(t)
	ns := r.namespace(t, "restored")
	r.create(t, ns, "old", "1")
	backup := r.backup(t)
	for i := range 20 {
		r.create(t, ns, fmt.Sprint("undone-", i), "1")
	}
	newest, _ := r.newest(t, ns)
	w := r.follow(t, ns, newest)
	r.restore(t, backup)
	w.expect(t, "ERROR 410 Expired")

	r.follow(t, ns, newest).expect(t, "ERROR 410 Expired")
	revision, state := r.newest(t, ns)
	if !maps.Equal(state, map[string]string{"old": "1"}) {
		t.Errorf("the restored state is %v", state)
	}
	w = r.follow(t, ns, revision)
	r.create(t, ns, "new", "1")
	w.expect(t, "ADDED "+ns+"/new=1")
}

// behind runs write while the server is disconnected, and compacts etcd before it connects
// again.
func (r *rig) behind(t *testing.T, write func()) {
	t.Helper()
	r.wire.disconnect()
	write()
	r.compact(t)
	r.wire.restore()
}

// some are the next n events, in the order of their words.
func (f follower) some(t *testing.T, n int) []string {
	t.Helper()
	var all []string
	for range n {
		event := f.next(t)
		o, ok := event.Object.(*corev1.ConfigMap)
		if !ok {
			t.Fatal(describe(event))
		}
		all = append(all, fmt.Sprintf("%s %s=%s", event.Type, o.Name, o.Data["data"]))
	}
	slices.Sort(all)
	return all
}

// fold applies events up to a revision.
func (f follower) fold(t *testing.T, state map[string]string, last string) {
	t.Helper()
	for {
		event := f.next(t)
		o, ok := event.Object.(*corev1.ConfigMap)
		if !ok {
			t.Fatal(describe(event))
		}
		if event.Type == watch.Deleted {
			delete(state, o.Name)
		} else {
			state[o.Name] = o.Data["data"]
		}
		if o.ResourceVersion == last {
			return
		}
	}
}

// namespaceRevision is a revision at which nothing of ConfigMaps was written.
func (r *rig) namespaceRevision(t *testing.T, name string) string {
	t.Helper()
	ns, err := r.api.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.ResourceVersion
}

func (r *rig) data() string { return filepath.Join(filepath.Dir(r.etcd.Log()), "etcd") }

// backup copies etcd's data, of which the server sees a short outage.
func (r *rig) backup(t *testing.T) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "backup")
	r.etcd.Kill()
	if err := errors.Join(os.CopyFS(copied, os.DirFS(r.data())), r.etcd.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	return copied
}

// restore puts etcd's data back to a backup.
func (r *rig) restore(t *testing.T, backup string) {
	t.Helper()
	r.etcd.Kill()
	if err := errors.Join(os.RemoveAll(r.data()), os.CopyFS(r.data(), os.DirFS(backup)),
		r.etcd.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
}
