// Resume shows an operator that keeps something in memory for each object, and has
// it again after a restart.
package main

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/operator/manager"
)

type Widget struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Size int `json:"size"`
	} `json:"spec"`
}

type request = operator.Request[*Widget]

// sizes are those of all widgets.
type sizes struct {
	mu sync.Mutex
	of map[types.UID]int
}

// keep is one function for three causes. Where two of them are given, for a widget
// that was changed while nobody ran, it is called once.
func (s *sizes) keep(ctx context.Context, r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[r.Object.UID] = r.Object.Spec.Size
	r.Logger.Info("kept", "cause", r.Cause.String(), "size", r.Object.Spec.Size, "total", s.total())
	return nil
}

func (s *sizes) forget(ctx context.Context, r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, r.Object.UID)
	r.Logger.Info("forgotten", "total", s.total())
	return nil
}

func (s *sizes) total() (sum int) {
	for _, size := range s.of {
		sum += size
	}
	return sum
}

func main() {
	op := operator.New("widgets.example.com")
	s := &sizes{of: map[types.UID]int{}}
	operator.OnCreate(op, s.keep)
	operator.OnUpdate(op, s.keep)
	operator.OnResume(op, s.keep)
	operator.OnDelete(op, s.forget)
	manager.Main(op)
}
