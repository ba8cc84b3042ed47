package operator_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// TestKilledAtRandomPoints kills the program repeatedly: in the call of a handler, before a
// patch arrives, or between a patch and its answer. Each handler is called at least once,
// and not again after its success was written. No finalizer remains.
func TestKilledAtRandomPoints(t *testing.T) {
	t.Parallel()
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	k := &killRun{T: t, testNamespace: newNamespace(t), gateway: newGateway(t), random: rand.New(rand.NewPCG(seed, 0)),
		called: map[string]int{}, deleted: map[string]bool{}}
	for range rounds {
		k.round()
	}
	k.finish()
	for _, name := range k.names {
		for _, id := range []string{"first", "second", "end", "farewell"} {
			early := k.deleted[name] && (id == "first" || id == "second") // they may not have had their turn
			if !early && k.called["called "+id+" "+name] == 0 {
				t.Errorf("%s of %s was never called", id, name)
			}
		}
	}
}

type killRun struct {
	*testing.T
	*testNamespace
	*gateway
	random  *rand.Rand
	names   []string
	deleted map[string]bool // while others were handled
	called  map[string]int  // lines that were printed
	log     calls
}

// round creates and deletes objects, starts a program, and kills it.
func (k *killRun) round() {
	k.Helper()
	for range 8 {
		name := fmt.Sprintf("w%d", len(k.names))
		k.names = append(k.names, name)
		k.create(name, "{}")
	}
	for range 3 {
		// An object without a finalizer would be deleted without a handler.
		if name := k.names[k.random.IntN(len(k.names))]; !k.deleted[name] && len(k.get(name).GetFinalizers()) > 0 {
			k.deleted[name] = true
			k.delete(name)
		}
	}
	done := k.written()
	died := make(chan struct{})
	kill := sync.OnceFunc(func() { close(died) })
	point, turn := k.random.IntN(3), 1+k.random.IntN(8)
	var passed int
	k.setDrop(func(answered bool) bool {
		select {
		case <-died:
			return true // what it has sent before it died may arrive or not; here it doesn't
		default:
		}
		if point == 0 || answered != (point == 2) {
			return false
		}
		if passed++; passed == turn {
			kill()
			return true
		}
		return false
	})
	c := spawn(k.T, k.testNamespace, k.config(), &k.log, noEndpoints...)
	printed := map[string]int{}
	for lines := 0; ; {
		select {
		case line, running := <-c.lines:
			if !running {
				k.Fatalf("the program has ended:\n%s", k.log.logged())
			}
			k.countLine(printed, done, line)
			if lines++; point == 0 && lines == turn {
				kill()
			}
			continue
		case <-died:
		case <-time.After(await.Deadline):
			k.Fatalf("the program does nothing:\n%s", k.log.logged())
		}
		break
	}
	_ = c.Process.Kill()
	for line := range c.lines {
		k.countLine(printed, done, line)
	}
	_ = c.Wait()
}

// finish runs a program until all objects are handled and deleted.
func (k *killRun) finish() {
	k.Helper()
	k.setDrop(func(bool) bool { return false })
	done := k.written()
	c := spawn(k.T, k.testNamespace, k.config(), &k.log, noEndpoints...)
	var drained sync.WaitGroup
	printed := map[string]int{}
	drained.Go(func() {
		for line := range c.lines {
			k.countLine(printed, done, line)
		}
	})
	for _, name := range k.names {
		if !k.deleted[name] {
			k.waitHandled(name)
			k.delete(name)
		}
	}
	for _, name := range k.names {
		k.waitGone(name)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		k.Fatal(err)
	}
	drained.Wait()
	if err := c.Wait(); err != nil {
		k.Errorf("asked to end, it ends with %v:\n%s", err, k.log.logged())
	}
}

// written returns the lines of the handlers whose success is stored.
func (k *killRun) written() map[string]bool {
	k.Helper()
	list, err := k.widgets().List(k.Context(), metav1.ListOptions{})
	if err != nil {
		k.Fatal(err)
	}
	done := map[string]bool{}
	for _, w := range list.Items {
		notes := w.GetAnnotations()
		for _, id := range []string{"first", "second", "end", "farewell"} {
			handled := notes[prefix+"/last-handled-configuration"] != "" && (id == "first" || id == "second")
			if handled || strings.Contains(notes[prefix+"/"+id], `"success":true`) {
				done["called "+id+" "+w.GetName()] = true
			}
		}
	}
	return done
}

// countLine records a printed line. A process prints no line twice.
func (k *killRun) countLine(printed map[string]int, done map[string]bool, line string) {
	k.called[line]++
	if printed[line]++; printed[line] > 1 {
		k.Errorf("%q twice in a process", line)
	}
	if done[line] {
		k.Errorf("%q after its success was written", line)
	}
}
