package judged

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keepwatch/keepwatch/operator"
)

// handlers are an operator with the package operator.
type handlers struct {
	*children
	changed sync.Map // names of Widgets whose children have changed
}

type request = operator.Request[*unstructured.Unstructured]

// runHandlers runs it: --bug NAME.
func runHandlers(args []string) error {
	c, err := newChildren(args)
	if err != nil {
		return err
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	if c.api, err = client.New(cfg, client.Options{}); err != nil {
		return err
	}
	c.cache = c.api
	h := &handlers{children: c}
	widgets := operator.New("widgets.example.com", operator.Namespaces(namespace))
	soon := operator.Backoff(200 * time.Millisecond)
	operator.OnCreate(widgets, h.adopt, soon)
	switch c.bug {
	case "intermediate":
		operator.OnField(widgets, "spec.size", func(_ context.Context, r *request) error {
			r.Patch.Status("before", r.Diff[0].Old)
			return nil
		})
	case "event-only", "cross-namespace":
		operator.OnEvent(widgets, func(ctx context.Context, r *request) error {
			if r.WatchEvent == "DELETED" {
				return c.deleteLog(ctx, r.Object.GetName())
			}
			return nil
		})
	default:
		operator.OnDelete(widgets, h.clean, soon)
	}
	if c.bug == "stale-list" {
		operator.OnStart(widgets, func(ctx context.Context, _ *rest.Config) error { return c.sweep(ctx) })
	}
	operator.OnUpdate(widgets, h.adopt, soon)
	operator.OnResume(widgets, h.adopt, soon)
	operator.Timer(widgets, 100*time.Millisecond, h.repair, soon)
	all := []*operator.Operator{widgets}
	for _, kind := range []string{"configmaps", "secrets"} {
		op := operator.New(kind, operator.Namespaces(namespace))
		operator.OnEvent(op, func(_ context.Context, r *request) error {
			h.changed.Store(r.Object.GetLabels()["widget"], true)
			return nil
		}, operator.Labels("widget"))
		all = append(all, op)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return operator.Run(ctx, cfg, all...)
}

func (h *handlers) adopt(ctx context.Context, r *request) error {
	changes, err := h.reconcile(ctx, r.Object)
	for field, value := range changes {
		r.Patch.Status(field, value)
	}
	if errors.Is(err, errAgain) {
		return operator.RetryAfter(err, 5*time.Millisecond)
	}
	return err
}

// repair adopts a Widget whose children have changed.
func (h *handlers) repair(ctx context.Context, r *request) error {
	name := r.Object.GetName()
	if _, changed := h.changed.LoadAndDelete(name); !changed {
		return nil
	}
	w := newWidget()
	err := h.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, w)
	if err == nil && w.GetDeletionTimestamp() == nil {
		r.Object = w
		err = h.adopt(ctx, r)
	}
	if client.IgnoreNotFound(err) != nil {
		h.changed.Store(name, true)
		return err
	}
	return nil
}

func (h *handlers) clean(ctx context.Context, r *request) error {
	err := h.deleteLog(ctx, r.Object.GetName())
	if apierrors.IsNotFound(err) && h.bug == "finalizer" {
		return fmt.Errorf("the log cannot be deleted: %w", err)
	}
	return client.IgnoreNotFound(err)
}
