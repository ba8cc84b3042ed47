package operator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/operator"
)

type request = operator.Request[*Widget]

func TestCreateUpdateDelete(t *testing.T) {
	p := newNamespace(t)
	op := p.operator("widgets.example.com")
	operator.OnCreate(op, func(ctx context.Context, r *request) error {
		p.log.add("create %s size %d", r.Object.Name, r.Object.Spec.Size)
		r.Patch.Status("phase", "Created")
		r.Patch.Label("seen", "yes")
		r.Result(map[string]int{"size": r.Object.Spec.Size})
		return nil
	}, operator.ID("make"))
	operator.OnUpdate(op, func(ctx context.Context, r *request) error {
		for _, d := range r.Diff {
			p.log.add("update %s %s %v to %v, was %d", d.Op, d.Path, d.Old, d.New, r.Old.Spec.Size)
		}
		return nil
	}, operator.When(func(w *Widget) bool { return w.Name != "ignored" }))
	operator.OnField(op, "spec.color", func(ctx context.Context, r *request) error {
		p.log.add("color %v", r.Diff)
		return nil
	})
	operator.OnDelete(op, func(ctx context.Context, r *request) error {
		p.log.add("delete %s", r.Object.Name)
		return nil
	})
	p.start(op)

	p.create("one", "{size: 1}")
	p.waitFor("create one size 1", "update add metadata <nil> to map[labels:map[seen:yes]], was 1")
	p.waitHandled("one")
	w := p.get("one")
	if got := w.Object["status"]; fmt.Sprint(got) != "map[make:map[size:1] phase:Created]" {
		t.Errorf("status %v", got)
	}
	if got := w.GetFinalizers(); len(got) != 1 || got[0] != prefix+"/finalizer" {
		t.Errorf("finalizers %q", got)
	}

	p.patch("one", `{"spec": {"size": 2}}`)
	p.waitUntil("the update", func() (bool, string) {
		return p.log.count("update change spec.size 1 to 2, was 1") == 1, fmt.Sprint(p.log.all())
	})
	p.patch("one", `{"spec": {"color": "red"}}`)
	p.waitUntil("the field", func() (bool, string) {
		return p.log.count("color [{add spec.color <nil> red}]") == 1, fmt.Sprint(p.log.all())
	})
	p.waitHandled("one")
	before := len(p.log.all())
	p.patch("one", `{"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}}`)
	p.delete("one")
	p.waitGone("one")
	if all := p.log.all(); len(all) != before+1 || all[before] != "delete one" {
		t.Errorf("after the deletion: %q", all[before:])
	}
}

func TestErrorsAreRetriedAsTheySay(t *testing.T) {
	p := newNamespace(t)
	op := p.operator("widgets.example.com")
	calls := map[string]int{}
	operator.OnCreate(op, func(ctx context.Context, r *request) error {
		calls["temporary"]++
		p.log.add("temporary %d", r.Retry)
		if calls["temporary"] < 3 {
			return operator.RetryAfter(errors.New("not yet"), 10*time.Millisecond)
		}
		return nil
	}, operator.ID("temporary"))
	operator.OnCreate(op, func(ctx context.Context, r *request) error {
		p.log.add("permanent")
		return operator.Permanent(errors.New("never"))
	}, operator.ID("permanent"))
	operator.OnCreate(op, func(ctx context.Context, r *request) error {
		p.log.add("plain %d", r.Retry)
		panic("at the disco")
	}, operator.ID("plain"), operator.Backoff(time.Millisecond), operator.Retries(2))
	p.start(op)
	p.create("one", "{}")
	p.waitHandled("one")
	for line, want := range map[string]int{"temporary 0": 1, "temporary 1": 1, "temporary 2": 1, "permanent": 1,
		"plain 0": 1, "plain 1": 1} {
		if got := p.log.count(line); got != want {
			t.Errorf("%q: %d times, want %d: %q", line, got, want, p.log.all())
		}
	}
}
