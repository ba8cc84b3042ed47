package operator

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// TestForgottenObjectReturns delivers an object of the same UID again while it is being
// forgotten. Its new state must reach the handler.
func TestForgottenObjectReturns(t *testing.T) {
	const rounds = 20_000
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	op := New("widgets.example.com", Logger(slog.New(slog.DiscardHandler)))
	seen := make(chan string, rounds*3)
	OnEvent(op, func(_ context.Context, r *thing) error {
		seen <- r.WatchEvent + " " + r.Object.ResourceVersion
		return nil
	})
	p := &process{}
	p.begin(ctx)
	p.stop = func(err error) { t.Error(err) }
	e := newEngine(op, widgetKind, nil, newFakeServer(), nil, p)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.work()
	}()
	revision := 0
	deliver := func(typ keepwatch.ChangeType) {
		revision++
		e.deliver(change{typ, keepwatch.Revision(revision), &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "one", "namespace": "default", "uid": "one-1",
				"resourceVersion": strconv.Itoa(revision)},
		}}, false})
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		deliver(keepwatch.Deleted)
		for range random.IntN(200) {
			runtime.Gosched()
		}
		deliver(keepwatch.Added)
		limit := time.After(await.Deadline)
		for want := "ADDED " + strconv.Itoa(revision); ; {
			select {
			case got := <-seen:
				if got == want {
					break
				}
				continue
			case <-limit:
				t.Fatalf("%s is never delivered", want)
			}
			break
		}
	}
	e.queue.Close()
	<-ended
}
