package reconcile

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/test/peer"
)

var gadgets = flag.Int("gadgets", 50, "how many gadgets there are")

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	peer.Main(m)
}

// TestAllDoTheSame checks that the operators have the same outcome; package bench compares
// their cost.
func TestAllDoTheSame(t *testing.T) {
	server := peer.SharedServe(t)
	if err := Define(t.Context(), server.Config()); err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]map[string]string{}
	for name, run := range map[string]func(ctx context.Context, cfg *rest.Config, namespace string) error{
		"controller-runtime": func(ctx context.Context, cfg *rest.Config, namespace string) error {
			return ControllerRuntime(ctx, cfg, namespace, 10)
		},
		"keepwatch": func(ctx context.Context, cfg *rest.Config, namespace string) error {
			return Keepwatch(ctx, cfg, namespace, 10)
		},
		"keepwatch-in-status": func(ctx context.Context, cfg *rest.Config, namespace string) error {
			return Keepwatch(ctx, cfg, namespace, 10, operator.ProgressInStatus("status.operator"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Fill(t.Context(), server.Config(), name, *gadgets); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), await.Deadline)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, server.Config(), name) }()
			if err := Done(ctx, server.Config(), name, *gadgets); err != nil {
				t.Error(err)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("asked to stop, it ends with %v", err)
			}
			outcomes[name] = children(t, server, name)
		})
	}
	for name, outcome := range outcomes {
		if len(outcome) != *gadgets || !maps.Equal(outcome, outcomes["controller-runtime"]) {
			t.Errorf("%s has made %d children that are others than controller-runtime's", name, len(outcome))
		}
	}
}

// TestSurvivesItsServer restarts the server while gadgets are handled, without its
// history, so that watches cannot resume. The operator continues.
func TestSurvivesItsServer(t *testing.T) {
	server := peer.Serve(t)
	if err := Define(t.Context(), server.Config()); err != nil {
		t.Fatal(err)
	}
	const namespace, batch = "survivor", 20
	if err := Fill(t.Context(), server.Config(), namespace, batch); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Keepwatch(ctx, server.Config(), namespace, 10) }()
	for n, end := range []func() error{server.Stop, func() error { server.Kill(); return nil }} {
		from := (n + 1) * batch
		if err := Add(t.Context(), server.Config(), namespace, from, from+batch); err != nil {
			t.Fatal(err)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		waiting, stop := context.WithTimeout(t.Context(), await.Deadline)
		err := Done(waiting, server.Config(), namespace, from+batch)
		stop()
		if err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("it ended with %v", err)
	default:
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("asked to stop, it ends with %v", err)
	}
	if made := children(t, server, namespace); len(made) != 3*batch {
		t.Errorf("%d children, want %d", len(made), 3*batch)
	}
}

// children returns the data of the ConfigMaps that are owned by a gadget of their name.
func children(t *testing.T, server *peer.Server, namespace string) map[string]string {
	t.Helper()
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	children := map[string]string{}
	for _, m := range list.Items {
		if owner := metav1.GetControllerOf(&m); owner != nil && owner.Kind == "Gadget" && owner.Name == m.Name &&
			owner.APIVersion == gadgetVersion.String() {
			children[m.Name] = fmt.Sprint(m.Data)
		}
	}
	return children
}
