package operator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// without is a server that does not have the group.
type without struct{}

func (without) Versions(context.Context, string) ([]string, error) { return nil, nil }
func (without) Resources(context.Context, schema.GroupVersion) ([]metav1.APIResource, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{}, "")
}

// Run ends at the deadline if the resource is absent, neither earlier nor later.
func TestStartupDeadlineIsExact(t *testing.T) {
	for _, deadline := range []time.Duration{0, time.Second, time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			op := New("widgets.example.com", StartupDeadline(deadline))
			began := time.Now()
			_, err := op.find(t.Context(), without{})
			if err == nil || !strings.Contains(err.Error(), "no resource widgets.example.com") {
				t.Errorf("%v: it ends with %v", deadline, err)
			}
			if took := time.Since(began); took != deadline {
				t.Errorf("%v: it gives up after %v", deadline, took)
			}
		})
	}
}

// A negative deadline waits without limit, as the reflector's does.
func TestNegativeStartupDeadlineWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op := New("widgets.example.com", StartupDeadline(-1))
		ctx, cancel := context.WithTimeoutCause(t.Context(), 24*time.Hour, errors.New("a day is over"))
		defer cancel()
		if _, err := op.find(ctx, without{}); err == nil || err.Error() != "a day is over" {
			t.Errorf("find returns %v", err)
		}
	})
}
