package clientgo_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/informer"
	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// Every new list is logged and counted by its reason, also one for an expired revision, for which
// client-go's error handler logs nothing, and one for watches that end at once.
func TestRelistIsLoggedAndCounted(t *testing.T) {
	ended := func(s *podtest.Server) {
		s.FailWatches(5, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
		s.CutWatches()
	}
	expired := func(s *podtest.Server) {
		s.FailWatches(1, podtest.Status(http.StatusGone, metav1.StatusReasonExpired, "too old resource version"))
		s.CutWatches()
	}
	for name, row := range map[string]struct {
		happens func(*podtest.Server)
		reason  string
		shared  bool
	}{
		"expired, typed":  {expired, "expired", false},
		"expired, shared": {expired, "expired", true},
		"ended, shared":   {ended, "ended", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := podtest.NewServer(t, podtest.Pod("a"))
			group, lines := clientgo.NewGroup(), &logLines{}
			inf := lines.run(t, s, group, row.shared)
			podtest.WaitForSync(t, inf)
			row.happens(s)
			podtest.Eventually(t, func() bool { return lines.have("lists again", row.reason) }, func() string {
				return "no line says why the informer lists again: " + strings.Join(lines.all(), "\n")
			})
			registry := prometheus.NewRegistry()
			registry.MustRegister(group)
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "keepwatch_watch_relists_total" {
					for _, l := range f.GetMetric()[0].GetLabel() {
						if l.GetName() == "reason" && l.GetValue() == row.reason {
							return
						}
					}
				}
			}
			t.Errorf("no relist is counted for the reason %q", row.reason)
		})
	}
}

type logLines struct {
	mu    sync.Mutex
	lines []string
}

// run runs an informer of pods that logs here.
func (l *logLines) run(t *testing.T, s *podtest.Server, group *clientgo.Group,
	shared bool) interface{ HasSynced() bool } {
	logger := funcr.New(func(_, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line)
	}, funcr.Options{})
	if shared {
		inf := group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, cache.Indexers{})
		podtest.Run(t, logging{inf.RunWithContext, logger})
		return inf
	}
	inf, err := informer.New[*corev1.Pod](s.Config(), informer.InGroup(group.Group))
	if err != nil {
		t.Fatal(err)
	}
	podtest.Run(t, logging{func(ctx context.Context) { _ = inf.Run(ctx) }, logger})
	return synced(inf.Synced())
}

func (l *logLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// have reports whether a line has all parts.
func (l *logLines) have(parts ...string) bool {
	for _, line := range l.all() {
		found := true
		for _, part := range parts {
			found = found && strings.Contains(line, part)
		}
		if found {
			return true
		}
	}
	return false
}

// logging runs with a logger in the context.
type logging struct {
	do     func(context.Context)
	logger klog.Logger
}

func (l logging) RunWithContext(ctx context.Context) { l.do(klog.NewContext(ctx, l.logger)) }

type synced <-chan struct{}

func (s synced) HasSynced() bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}
