package conformance

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch/test/peer"
)

// Watchers runs the tests that correspond to "[sig-api-machinery] Watchers".
func Watchers(t *testing.T, server *peer.Server) {
	scenes(t, server, map[string]func(scene){
		"several-watchers":      severalWatchers,
		"from-a-revision":       fromARevision,
		"goes-on":               resumes,
		"leaves-the-selector":   leavesTheSelector,
		"same-order-everywhere": sameOrderEverywhere,
	})
}

// "should observe add, update, and delete watch notifications on configmaps": a watch
// receives the events of the objects that it selects, and no others.
func severalWatchers(s scene) {
	a, b, both := s.follow("", "watched=a"), s.follow("", "watched=b"), s.follow("", "watched in (a, b)")
	each := func(event watch.EventType, name, mutation string, all ...follower) {
		s.Helper()
		for _, f := range all {
			f.expect(event, name, mutation)
		}
	}
	o := s.create("of-a", "a")
	each(watch.Added, "of-a", "", a, both)
	o = s.update(o, "a", "1")
	each(watch.Modified, "of-a", "1", a, both)
	s.update(o, "a", "2")
	each(watch.Modified, "of-a", "2", a, both)
	s.remove("of-a")
	each(watch.Deleted, "of-a", "2", a, both)
	s.create("of-b", "b")
	each(watch.Added, "of-b", "", b, both) // the first event of b
	s.remove("of-b")
	each(watch.Deleted, "of-b", "", b, both)
	s.create("end", "a")
	each(watch.Added, "end", "", a, both) // the next event of a
}

// "should be able to start watching from a specific resource version".
func fromARevision(s scene) {
	first := s.update(s.create("a", "a"), "a", "1")
	s.update(first, "a", "2")
	s.remove("a")
	w := s.follow(first.ResourceVersion, "watched=a")
	w.expect(watch.Modified, "a", "2")
	w.expect(watch.Deleted, "a", "2")
}

// "should be able to restart watching from the last resource version observed by the
// previous watch".
func resumes(s scene) {
	w := s.follow("", "watched=a")
	o := s.update(s.create("a", "a"), "a", "1")
	w.expect(watch.Added, "a", "")
	_, last := w.next()
	w.Stop()
	s.update(o, "a", "2")
	w = s.follow(last.ResourceVersion, "watched=a")
	s.remove("a")
	w.expect(watch.Modified, "a", "2")
	w.expect(watch.Deleted, "a", "2")
}

// "should observe an object deletion if it stops meeting the requirements of the
// selector": the deletion has the object's last matching state, and a later match is an
// ADDED.
func leavesTheSelector(s scene) {
	w := s.follow("", "watched=yes")
	o := s.update(s.create("a", "yes"), "yes", "1")
	w.expect(watch.Added, "a", "")
	w.expect(watch.Modified, "a", "1")
	o = s.update(o, "no", "2")
	event, left := w.next()
	if event != watch.Deleted || left.Data["mutation"] != "1" || left.ResourceVersion != o.ResourceVersion {
		s.Errorf("it leaves as %s with mutation %q at %s, want %q at %s", event, left.Data["mutation"], left.ResourceVersion,
			"1", o.ResourceVersion)
	}
	o = s.update(o, "no", "3")
	o = s.update(o, "yes", "4")
	w.expect(watch.Added, "a", "4")
	s.update(o, "yes", "5")
	w.expect(watch.Modified, "a", "5")
	s.remove("a")
	w.expect(watch.Deleted, "a", "5")
}

// "should receive events on concurrent watches in same order": from whichever event
// a watch begins, it sees the rest as the others do.
func sameOrderEverywhere(s scene) {
	const events = 100
	seed := rand.Uint64()
	s.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	first := s.follow(s.create("first", "a").ResourceVersion, "")
	go s.churn(random, events)
	var order []string
	var others []follower
	for range events {
		_, o := first.next()
		order = append(order, o.ResourceVersion)
		others = append(others, s.follow(o.ResourceVersion, ""))
	}
	for i := 1; i < len(order); i++ {
		before, _ := strconv.ParseUint(order[i-1], 10, 64)
		if now, err := strconv.ParseUint(order[i], 10, 64); err != nil || now <= before {
			s.Fatalf("event %d is of revision %s, behind %s", i, order[i], order[i-1])
		}
	}
	for i, other := range others {
		for k := i + 1; k < events; k++ {
			if _, o := other.next(); o.ResourceVersion != order[k] {
				s.Fatalf("the watch that began at event %d sees revision %s as its event %d, the first watch saw %s", i,
					o.ResourceVersion, k, order[k])
			}
		}
	}
}

// churn makes a number of events, at random on three names.
func (s scene) churn(random *rand.Rand, events int) {
	alive := map[string]bool{}
	for i := range events {
		name := fmt.Sprint("item-", random.IntN(3))
		var err error
		switch {
		case !alive[name]:
			alive[name] = true
			_, err = s.Create(s.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		case random.IntN(2) == 0:
			alive[name] = false
			err = s.Delete(s.Context(), name, metav1.DeleteOptions{})
		default:
			_, err = s.Patch(s.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"mutation":"%d"}}`, i),
				metav1.PatchOptions{})
		}
		if err != nil {
			s.Errorf("event %d: %v", i, err)
			return
		}
	}
}
