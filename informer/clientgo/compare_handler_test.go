package clientgo_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// The transform is called once for each state of an object, also if a list returns it again.
func TestCompareTransforms(t *testing.T) {
	for _, b := range builds {
		s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("b"))
		inf := b.build(podsOn(s))
		var mu sync.Mutex
		calls := map[string]int{}
		if err := inf.SetTransform(func(o any) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[describe(o)]++
			return o, nil
		}); err != nil {
			t.Fatal(err)
		}
		var events recorder
		handle(t, inf, &events)
		stop := podtest.Run(t, inf)
		podtest.WaitForSync(t, inf)
		s.FailWatches(1, func(w http.ResponseWriter, r *http.Request) {
			s.Put(podtest.Pod("c"))
			s.ForgetHistory()
			podtest.Status(410, metav1.StatusReasonExpired, "too old")(w, r)
		})
		s.CutWatches()
		events.wantSome(t, "add c@103")
		stop()
		t.Logf("%s: transformed %v", b.by, calls)
		if b.by == "keepwatch" && fmt.Sprint(calls) != "map[a@101:1 b@102:1 c@103:1]" {
			t.Errorf("keepwatch transformed %v", calls)
		}
	}
}

// A transform that fails for one object neither blocks the others nor leaves an earlier state
// of the object in the cache.
func TestCompareTransformErrors(t *testing.T) {
	for _, b := range builds {
		s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("b", podtest.Mark("bad")), podtest.Pod("c"))
		inf := b.build(podsOn(s))
		if err := inf.SetTransform(func(o any) (any, error) {
			if p, ok := o.(*corev1.Pod); ok && p.Labels["mark"] == "bad" {
				return nil, errors.New("bad")
			}
			return o, nil
		}); err != nil {
			t.Fatal(err)
		}
		var events recorder
		handle(t, inf, &events)
		stop := podtest.Run(t, inf)
		events.wantSome(t, "add! a@101")
		s.Put(podtest.Pod("a", podtest.Mark("bad")))
		s.Put(podtest.Pod("d"))
		if b.by == "keepwatch" {
			events.wantSome(t, "add d@105")
		} else {
			for begin := time.Now(); time.Since(begin) < 2*time.Second && !slices.Contains(events.all(), "add d@105"); {
				runtime.Gosched() // client-go may never deliver it
			}
		}
		keys := inf.GetStore().ListKeys()
		slices.Sort(keys)
		synced := inf.HasSynced()
		stop()
		t.Logf("%s: synced %v, events %q, keys %q", b.by, synced, events.all(), keys)
		if want := []string{"ns/c", "ns/d"}; b.by == "keepwatch" && (!synced || !slices.Equal(keys, want)) {
			t.Errorf("keepwatch has %q, synced %v", keys, synced)
		}
	}
}

// A panic in one handler ends neither the process, here one that runs this test again, nor the
// other handlers.
func TestComparePanics(t *testing.T) {
	if by := os.Getenv("KEEPWATCH_TEST_PANIC"); by != "" {
		for _, b := range builds {
			if b.by != by {
				continue
			}
			inf := b.build(newSource(t, podtest.Pod("a"), podtest.Pod("b")))
			var well recorder
			handle(t, inf, &recorder{react: func(line string) { panic(line) }})
			handle(t, inf, &well)
			podtest.Run(t, inf)
			well.wantSome(t, "add! a@1", "add! b@2")
		}
		return
	}
	for _, b := range builds {
		again := exec.Command(os.Args[0], "-test.run=^TestComparePanics$", "-test.timeout=1m")
		again.Env = append(os.Environ(), "KEEPWATCH_TEST_PANIC="+b.by)
		out, err := again.CombinedOutput()
		last, _, _ := strings.Cut(string(out), "\n")
		t.Logf("%s: %v: %s", b.by, err, last)
		if b.by == "keepwatch" && err != nil {
			t.Errorf("keepwatch: %v: %s", err, out)
		}
	}
}
