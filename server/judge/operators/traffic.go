package operators

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// traffic is what passes between the operator and its server: a record of its writes, the disturbance, and whether the
// operator is quiet. It stands behind authentication and authorization.
type traffic struct {
	user   string
	groups []string
	world  *world // behind it

	mu       sync.Mutex
	began    time.Time
	step     int
	done     chan struct{} // closed when the objects of the step were written
	instance int
	requests []*Request                 // at most maxRequests
	dropped  int                        // after these
	counts   map[Place]int              // the writes of a place without Nth
	names    []namePattern              // of random names
	contents map[types.UID][]string     // what the operator has written to each object, see restores
	own      map[string]map[string]bool // what the operator has created and not deleted, of random names, by key
	touched  map[schema.GroupVersionResource]bool
	watches  map[*openWatch]struct{}
	inFlight int
	actions  int // see activity
	reads    int
	unseen   int64
	pause    chan struct{}
	past     *pastReads
	decided  bool // see decides
	late     *delay
	again    map[Place]int // writes of this step while reads are old or events are late, without Nth
	miss     *miss         // nil if none is awaited
	kill     func()        // the instance that runs
	dying    bool          // the next request kills the instance
	answer   time.Time     // when it was answered what it should receive before that
	fault    *disturbance
}

func newTraffic(user string, groups ...string) *traffic {
	nothing := make(chan struct{}) // is to be written before the first step
	close(nothing)
	return &traffic{
		user: user, groups: groups, began: time.Now(), done: nothing,
		counts: map[Place]int{}, touched: map[schema.GroupVersionResource]bool{}, watches: map[*openWatch]struct{}{},
		contents: map[types.UID][]string{}, own: map[string]map[string]bool{}, again: map[Place]int{},
	}
}

func (t *traffic) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		info, ok := request.RequestInfoFrom(q.Context())
		by, known := request.UserFrom(q.Context())
		if !ok || !known {
			next.ServeHTTP(w, q)
			return
		}
		if isWrite(info.Verb) && isNoise(info.APIGroup, info.Resource) {
			defer func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				t.unseen++
			}()
		}
		if by.GetName() != t.user {
			next.ServeHTTP(w, q)
			return
		}
		t.wait(q.Context())
		t.dieIfDying()
		if sender := q.Header.Get(instanceHeader); sender != "" && !t.runs(sender) {
			panic(http.ErrAbortHandler)
		}
		switch {
		case !info.IsResourceRequest:
			t.read()
			next.ServeHTTP(w, q)
		case info.Verb == "watch":
			t.read()
			t.watch(t.noticing(w, q), q, next)
		case isWrite(info.Verb) && !isNoise(info.APIGroup, info.Resource):
			t.write(w, q, next, info)
		default:
			t.read()
			t.enter()
			defer t.leave(false)
			if past := t.pastFor(q); past != nil {
				past.ServeHTTP(w, q)
				return
			}
			resource := placeOf(info, "").Resource
			t.decides(func(of Place) bool { return of.Resource == resource })
			next.ServeHTTP(t.noticing(w, q), q)
		}
	})
}

// wait waits while the operator is cut off.
func (t *traffic) wait(ctx context.Context) {
	t.mu.Lock()
	pause := t.pause
	t.mu.Unlock()
	if pause == nil {
		return
	}
	select {
	case <-pause:
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}

// dieIfDying kills an instance whose last write was answered, before it asks anything else.
func (t *traffic) dieIfDying() {
	t.mu.Lock()
	dying, kill := t.dying, t.kill
	t.mu.Unlock()
	if dying {
		kill()
		panic(http.ErrAbortHandler)
	}
}

func (t *traffic) enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight++
}

func (t *traffic) leave(active bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inFlight--; active {
		t.actions++
	}
}

func (t *traffic) read() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads++
}

func (t *traffic) begin(step int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.step, t.done = step, make(chan struct{})
	clear(t.again)
	t.actions++
}

// performed says that the objects of the step were written.
func (t *traffic) performed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.done:
	default:
		close(t.done)
	}
}

// awaitPerformed waits until the objects of the step were written, or the request of an exchange ends.
func (x exchange) awaitPerformed() {
	x.t.mu.Lock()
	done := x.t.done
	x.t.mu.Unlock()
	select {
	case <-done:
	case <-x.q.Context().Done():
	}
}

// started makes an instance the one whose requests are served.
func (t *traffic) started(kill func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.instance++
	t.actions++
	t.kill, t.dying = kill, false
}

// isRestarted reports whether the instance that runs is not the first one.
func (t *traffic) isRestarted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.instance > 1
}

// nextInstance returns the number of the next instance.
func (t *traffic) nextInstance() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strconv.Itoa(t.instance + 1)
}

// runs reports whether an instance is the newest one, or about to be.
func (t *traffic) runs(number string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return number == strconv.Itoa(t.instance) || number == strconv.Itoa(t.instance+1)
}

func (t *traffic) activity() activity {
	t.mu.Lock()
	defer t.mu.Unlock()
	return activity{t.actions, t.reads, t.unseen, t.inFlight, len(t.watches), t.dying}
}

// killNow kills the instance that runs.
func (t *traffic) killNow() {
	t.mu.Lock()
	kill := t.kill
	t.mu.Unlock()
	kill()
}

// killNext kills the instance at its next request, or soon.
func (t *traffic) killNext() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dying, t.answer = true, time.Now()
}

// killLate kills the instance if it has asked nothing since the answer that it should receive.
func (t *traffic) killLate() {
	t.mu.Lock()
	kill, late := t.kill, t.dying && time.Since(t.answer) > lastAnswer
	t.mu.Unlock()
	if late {
		kill()
	}
}
