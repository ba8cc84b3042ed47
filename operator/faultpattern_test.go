package operator

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// faultPattern is a fault at one of an operator's patches: the three patterns of Sieve (Sun et al., "Automatic
// Reliability Testing for Cluster Management Controllers", OSDI 2022).
type faultPattern uint8

const (
	noFault faultPattern = iota
	// killBefore and killAfter: the process is killed before or after the server applies the
	// patch. The next process starts from that intermediate state.
	killBefore
	killAfter
	// staleReplica: the process is killed after the patch, and the next one reads from a
	// replica that does not have the patch yet.
	staleReplica
	// unobserved: the object changes and changes back right after the patch, and none of the
	// three states is delivered.
	unobserved
)

func (d faultPattern) String() string {
	return [...]string{"undisturbed", "died before", "died after", "stale", "unobserved"}[d]
}

// TestFaultAtEachPatch runs one scenario repeatedly, with each fault at each of the
// operator's patches. The final state is always that of the run without a fault.
func TestFaultAtEachPatch(t *testing.T) {
	var want map[string]any
	patches := 0
	run := func(d faultPattern, at int) {
		t.Run(fmt.Sprintf("%v %d", d, at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScenario(d, at)
				s.run(t)
				switch got := s.outcome(); {
				case d == noFault:
					want, patches = got, s.patched
				case s.patched < at:
					t.Errorf("there were %d patches: it was not disturbed", s.patched)
				case !reflect.DeepEqual(got, want):
					t.Errorf("it ends with %v, undisturbed with %v", got, want)
				}
			})
		})
	}
	run(noFault, 0)
	if patches < 10 {
		t.Fatalf("the story has %d patches", patches)
	}
	for _, d := range []faultPattern{killBefore, killAfter, staleReplica, unobserved} {
		for at := range patches {
			run(d, at+1)
		}
	}
}

// scenario creates and changes an object, deletes it, and creates and changes another one
// of the same name.
type scenario struct {
	*fakeServer
	*handlerCalls
	faultPattern
	at      int           // which patch is disturbed, from 1
	patched int           // patches so far
	died    chan struct{} // has an element when the process is to die
	quiet   atomic.Bool
}

func newScenario(d faultPattern, at int) *scenario {
	s := &scenario{
		fakeServer: newFakeServer(), handlerCalls: &handlerCalls{last: map[string]int{}, deletions: map[string]int{}},
		faultPattern: d, at: at, died: make(chan struct{}, 1),
	}
	s.quiet.Store(true)
	s.fault = s.inject
	return s
}

// inject is called before a patch is applied.
func (s *scenario) inject(r write.Request, name string) (err error, taken bool) {
	if s.patched++; s.patched != s.at {
		return nil, false
	}
	switch s.faultPattern {
	case killBefore:
		s.died <- struct{}{}
		return errors.New("it has died"), false
	case staleReplica:
		s.lock(func() { s.replica = &replica{len(s.history), 7 * time.Second} })
		fallthrough
	case killAfter:
		s.died <- struct{}{}
		return errors.New("it has died"), true
	case unobserved:
		s.lock(func() {
			s.lag = func() time.Duration { return 2 * time.Second }
			s.skip = func() bool { return true }
		})
		time.AfterFunc(time.Second, func() {
			if o := s.fakeServer.at(name); o != nil {
				size := o["spec"].(map[string]any)["size"]
				s.change(name, "size", int64(99))
				s.change(name, "size", size)
			}
		})
		time.AfterFunc(3*time.Second, func() {
			s.lock(func() {
				s.lag = func() time.Duration { return 0 }
				s.skip = func() bool { return false }
			})
		})
	}
	return nil, false
}

func (s *scenario) lock(f func()) {
	s.fakeServer.mu.Lock()
	defer s.fakeServer.mu.Unlock()
	f()
}

// run runs the scenario and checks the final state.
func (s *scenario) run(t *testing.T) {
	op, m := s.start(t)
	for _, happens := range []func(){
		func() { s.create("one", spec(1)) },
		func() { s.change("one", "size", int64(2)) },
		func() { s.change("one", "size", int64(3)) },
		func() { s.fakeServer.delete("one") },
		func() { s.create("one", spec(4)) },
		func() { s.change("one", "size", int64(5)) },
		func() {},
	} {
		happens()
		next := time.After(time.Minute)
		for waiting := true; waiting; {
			select {
			case <-next:
				waiting = false
			case <-s.died:
				m.killed.Store(true)
				op.cancelHandlers(ErrStopped)
				_ = op.end()
				op, m = s.start(t)
			}
		}
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	s.check(t, s.fakeServer)
	if err := op.end(); err != nil {
		t.Error(err)
	}
}

func (s *scenario) start(t *testing.T) (*runningOperator, *killableServer) {
	m := &killableServer{fakeServer: s.fakeServer}
	second := func(int) int { return 1 }
	return startWith(t, s.fakeServer, failingOperator(s.handlerCalls, second, &s.quiet), m), m
}

// outcome returns the final objects without their resourceVersions.
func (s *scenario) outcome() map[string]any {
	left := map[string]any{}
	for name := range s.objects {
		u := &unstructured.Unstructured{Object: s.fakeServer.at(name)}
		u.SetResourceVersion("")
		left[name] = u.Object
	}
	return left
}
