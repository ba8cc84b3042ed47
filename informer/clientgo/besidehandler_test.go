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

	"github.com/keepwatch/keepwatch/informer/internal/podtest"
)

// Each state of an object goes through the transform once, whatever a list shows
// again.
func TestBesideTransforms(t *testing.T) {
	for _, b := range builds {
		s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("b"))
		inf := b.build(podsOn(s))
		var mu sync.Mutex
		calls := map[string]int{}
		if err := inf.SetTransform(func(o any) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[about(o)]++
			return o, nil
		}); err != nil {
			t.Fatal(err)
		}
		var told recorder
		handle(t, inf, &told)
		stop := podtest.Run(t, inf)
		podtest.WaitForSync(t, inf)
		s.FailWatches(1, func(w http.ResponseWriter, r *http.Request) {
			s.Put(podtest.Pod("c"))
			s.ForgetHistory()
			podtest.Status(410, metav1.StatusReasonExpired, "too old")(w, r)
		})
		s.CutWatches()
		told.hears(t, "add c@103")
		stop()
		t.Logf("%s: transformed %v", b.by, calls)
		if b.by == "keepwatch" && fmt.Sprint(calls) != "map[a@101:1 b@102:1 c@103:1]" {
			t.Errorf("ours transformed %v", calls)
		}
	}
}

// A transform that fails for one object neither holds up the others nor leaves
// behind what that one was before.
func TestBesideTransformErrors(t *testing.T) {
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
		var told recorder
		handle(t, inf, &told)
		stop := podtest.Run(t, inf)
		told.hears(t, "add! a@101")
		s.Put(podtest.Pod("a", podtest.Mark("bad")))
		s.Put(podtest.Pod("d"))
		if b.by == "keepwatch" {
			told.hears(t, "add d@105")
		} else {
			for begun := time.Now(); time.Since(begun) < 2*time.Second && !slices.Contains(told.told(), "add d@105"); {
				runtime.Gosched() // it may never come there
			}
		}
		keys := inf.GetStore().ListKeys()
		slices.Sort(keys)
		synced := inf.HasSynced()
		stop()
		t.Logf("%s: synced %v, told %q, holds %q", b.by, synced, told.told(), keys)
		if want := []string{"ns/c", "ns/d"}; b.by == "keepwatch" && (!synced || !slices.Equal(keys, want)) {
			t.Errorf("ours holds %q, synced %v", keys, synced)
		}
	}
}

// A panic in one handler takes down neither the process, here one that runs this
// test again, nor the other handlers.
func TestBesidePanics(t *testing.T) {
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
			well.hears(t, "add! a@1", "add! b@2")
		}
		return
	}
	for _, b := range builds {
		again := exec.Command(os.Args[0], "-test.run=^TestBesidePanics$", "-test.timeout=1m")
		again.Env = append(os.Environ(), "KEEPWATCH_TEST_PANIC="+b.by)
		out, err := again.CombinedOutput()
		last, _, _ := strings.Cut(string(out), "\n")
		t.Logf("%s: %v: %s", b.by, err, last)
		if b.by == "keepwatch" && err != nil {
			t.Errorf("ours came to %v: %s", err, out)
		}
	}
}
