package personal

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// run is one decision about the set of a view. It asks first about the namespaces that are shown, and those in which
// the user is bound. What is denied is published at once, and what is granted when all of the first are decided. After
// a change it asks about the first again, and once more each second until all API servers follow the change; about the
// others it asks only if it has not yet. So no change waits for a slow decision, and changes without an end do not keep
// it from ending. If nothing is due but that some namespaces have come or gone, it asks about those alone. One
// goroutine uses it.
type run struct {
	view  *View
	open  bool // it is for open watches
	began time.Time
	// number is that of the changes which the questions know of, and existing and candidates are as of them.
	number        uint64
	round         int // of questions about the first
	roundBegan    time.Time
	existing      map[string]keepwatch.UID
	moved         map[string]bool          // the namespaces that it is about; nil if it is about all
	kept          map[string]keepwatch.UID // what else is in the set
	candidates    map[string]bool          // of those that it is about, the ones that may be in the set
	first, others []string                 // to be asked about; the empty one stands for all of them
	asked         map[string]int           // questions in flight
	inFlight      int                      // all of them
	firstInFlight int
	decided       map[string]decision
	denies        bool // something that is shown, which is published at once
	due           bool // the first are published when all of them are decided
	answers       chan answer
	asking        sync.WaitGroup
}

func newRun(view *View, open bool) *run {
	return &run{view: view, open: open, began: time.Now(), asked: map[string]int{}, decided: map[string]decision{},
		answers: make(chan answer, reviewsOfView+1)}
}

// decision is one about a namespace.
type decision struct {
	allowed bool
	uid     keepwatch.UID
	number  uint64 // of the changes before it
	round   int
}

// answer is the decision about a namespace, or about all.
type answer struct {
	decision
	namespace    string
	first, extra bool // it was one of the first; it was asked by one of the further askers
	shown        bool // a denial ends what is shown
	err          error
}

// decide asks the server, and replaces the set. It fails if the server does not decide about a namespace, and when ctx
// ends. Nothing is in flight when it returns.
func (r *run) decide(ctx context.Context) error {
	askers := r.view.views.askers
	askers.begin(r.view.owner)
	defer askers.end(r.view.owner)
	defer r.asking.Wait()
	failed, ended := r.begin(), ctx.Done()
	for {
		for failed == nil && r.askNext(ctx) {
		}
		r.publish()
		if r.inFlight == 0 {
			if failed != nil || r.end() {
				return failed
			}
			failed = r.begin()
			continue
		}
		var again <-chan time.Time
		if failed == nil {
			again = r.again()
		}
		select {
		case a := <-r.answers:
			if err := r.takeAll(a); failed == nil {
				failed = err
			}
		case <-r.view.changed:
			if failed == nil && r.hasChanges() {
				failed = r.begin()
			}
		case <-again:
			failed = r.begin()
		case <-ended:
			failed, ended = context.Cause(ctx), nil
		}
	}
}

// hasChanges reports whether there were changes of which the questions do not know.
func (r *run) hasChanges() bool {
	r.view.mu.Lock()
	defer r.view.mu.Unlock()
	return r.view.changes != r.number
}

// again returns a channel that receives when the first are asked once more: the API server that decides may follow the
// roles later than this process. It is nil before the first are decided, and if they were asked when the last change
// had settled.
func (r *run) again() <-chan time.Time {
	if len(r.first) > 0 || r.firstInFlight > 0 {
		return nil
	}
	w := r.view
	w.mu.Lock()
	defer w.mu.Unlock()
	if !r.roundBegan.Before(w.followed.Add(time.Second)) {
		return nil
	}
	at := r.roundBegan.Add(time.Second)
	if w.again.After(r.roundBegan) && w.again.Before(at) {
		at = w.again
	}
	return time.After(time.Until(at))
}

// begin begins a round with the present changes. What was allowed before them is asked about again, as is all that is
// shown.
func (r *run) begin() (err error) {
	w, v := r.view, r.view.views
	w.mu.Lock()
	changes, shown := w.changes, w.present
	if r.round == 0 || r.moved != nil {
		r.moved = w.onlyMoved()
	}
	w.mu.Unlock()
	existing, err := v.cluster.Namespaces()
	if err != nil {
		return err
	}
	candidates, bound := v.candidates(w.subject, existing, shown)
	r.number, r.existing, r.candidates = changes, existing, make(map[string]bool, len(candidates))
	r.round, r.roundBegan = r.round+1, time.Now()
	r.first, r.others, r.denies, r.due, r.kept = nil, nil, true, true, map[string]keepwatch.UID{}
	if r.moved == nil {
		r.first = []string{""}
		delete(r.decided, "")
	} else {
		candidates = slices.DeleteFunc(candidates, func(namespace string) bool { return !r.moved[namespace] })
		for namespace, uid := range shown.All() {
			if !r.moved[namespace] && existing[namespace] == uid {
				r.kept[namespace] = uid
			}
		}
	}
	for _, namespace := range candidates {
		r.candidates[namespace] = true
		d, known := r.decided[namespace]
		switch {
		case d.allowed, bound[namespace], shown != nil && shown.Has(namespace):
			r.first = append(r.first, namespace)
			delete(r.decided, namespace)
		case known && d.uid == existing[namespace], r.asked[namespace] > 0:
		default:
			r.others = append(r.others, namespace)
		}
	}
	return nil
}

// askNext asks one more question. It reports false if there is none, and if as many are in flight as may be: one at
// least, and one of the first beside others.
func (r *run) askNext(ctx context.Context) bool {
	w, askers := r.view, r.view.views.askers
	first := len(r.first) > 0
	queue, extra := &r.others, r.inFlight > 0
	if first {
		queue, extra = &r.first, r.firstInFlight > 0
	}
	if len(*queue) == 0 || extra && (r.inFlight >= reviewsOfView || !askers.take(w.owner)) {
		return false
	}
	a := answer{namespace: (*queue)[0], first: first, extra: extra}
	a.number, a.round, a.uid = r.number, r.round, r.existing[a.namespace]
	*queue = (*queue)[1:]
	r.count(a, 1)
	present, _, _ := w.Namespaces()
	a.shown = present != nil && (present.Has(a.namespace) || a.namespace == "" && r.losesByAll(present))
	r.asking.Go(func() {
		a.allowed, a.err = w.views.review(ctx, w.subject.attributes(a.namespace), r.open, a.shown)
		r.answers <- a
	})
	return true
}

// losesByAll reports whether a set has a namespace that is in it by what is allowed in all: a denial of that ends it.
func (r *run) losesByAll(set *watchcache.Namespaces) bool {
	for namespace := range set.All() {
		if !r.candidates[namespace] {
			return true
		}
	}
	return false
}

// count adds to the questions in flight.
func (r *run) count(a answer, n int) {
	if r.asked[a.namespace] += n; r.asked[a.namespace] == 0 {
		delete(r.asked, a.namespace)
	}
	r.inFlight += n
	if a.first {
		r.firstInFlight += n
	}
}

// takeAll takes an answer and those that have arrived meanwhile.
func (r *run) takeAll(a answer) (failed error) {
	for {
		r.take(a)
		if a.err != nil && failed == nil {
			failed = a.err
		}
		select {
		case a = <-r.answers:
		default:
			return failed
		}
	}
}

// take takes an answer. One of an earlier round counts if it denies a namespace; one that is allowed is asked about
// again.
func (r *run) take(a answer) {
	r.count(a, -1)
	if a.extra {
		r.view.views.askers.release(r.view.owner)
	}
	of := a.namespace
	switch last, known := r.decided[of]; {
	case a.err != nil, known && last.round > a.round:
	case a.round == r.round, of != "" && !a.allowed && a.uid == r.existing[of]:
		r.decided[of] = a.decision
		r.denies = r.denies || a.shown && !a.allowed
	case r.candidates[of] && !slices.Contains(r.first, of):
		r.first, r.due = append(r.first, of), true
	}
	if r.everywhere() {
		r.first, r.others = nil, nil
	}
}

// everywhere reports whether the user is allowed in all namespaces.
func (r *run) everywhere() bool { return r.decided[""].allowed }

// publish replaces the set while the others are not decided: by one without what is denied, and with what is granted
// if all of the first are decided and nothing has changed since. To build a set takes longer than an answer, so it is
// not built after each.
func (r *run) publish() {
	w, all := r.view, len(r.first) == 0 && r.firstInFlight == 0
	if !r.denies && !(all && r.due) || r.everywhere() {
		return
	}
	r.denies, r.due = false, r.due && !all
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.present == nil || w.err != nil {
		return
	}
	_, notAll := r.decided[""]
	now := map[string]keepwatch.UID{}
	for namespace, uid := range w.present.All() {
		d, known := r.decided[namespace]
		if r.existing[namespace] == uid && (r.candidates[namespace] || !notAll) && (d.allowed || !known) {
			now[namespace] = uid
		}
	}
	if all && r.number == w.changes {
		maps.Copy(now, r.allowed())
	}
	w.show(w.views.sets.of(now, w.subject.ofNamespaces(), w.present), r.began, r.number)
}

// allowed returns the namespaces that the server has allowed, and that may be in the set as of the present changes.
func (r *run) allowed() map[string]keepwatch.UID {
	if r.everywhere() {
		return r.existing
	}
	all := maps.Clone(r.kept)
	for namespace, d := range r.decided {
		if d.allowed && r.candidates[namespace] && r.existing[namespace] == d.uid {
			all[namespace] = d.uid
		}
	}
	return all
}

// end replaces the set when all is decided. It reports false if there were changes meanwhile.
func (r *run) end() bool {
	w, applied := r.view, r.number
	for namespace := range r.candidates {
		applied = min(applied, r.decided[namespace].number)
	}
	if r.everywhere() {
		applied = r.number
	}
	present, _, _ := w.Namespaces()
	set := w.views.sets.of(r.allowed(), w.subject.ofNamespaces(), present)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changes != r.number && !w.gone {
		return false
	}
	w.of, w.applied, w.failing = len(r.existing), applied, time.Time{}
	w.show(set, r.began, applied)
	if r.moved == nil {
		w.decided, w.everywhere = r.began, r.everywhere()
		w.whole = applied != w.changes || w.everywhere
	}
	if w.touched = false; applied == w.changes {
		w.rechecked, w.moved = false, nil
	}
	return true
}
