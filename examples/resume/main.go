// Resume shows an operator that has a value in memory for each object, and has it again
// after a restart.
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

// sizes has the sizes of all widgets.
type sizes struct {
	mu sync.Mutex
	of map[types.UID]int
}

// record handles three causes. If two of them apply, to a widget that was changed while
// the operator was not running, it is called once.
func (s *sizes) record(ctx context.Context, r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[r.Object.UID] = r.Object.Spec.Size
	r.Logger.Info("recorded", "cause", string(r.Cause), "size", r.Object.Spec.Size, "total", s.total())
	return nil
}

func (s *sizes) remove(ctx context.Context, r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, r.Object.UID)
	r.Logger.Info("removed", "total", s.total())
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
	operator.OnCreate(op, s.record)
	operator.OnUpdate(op, s.record)
	operator.OnResume(op, s.record)
	operator.OnDelete(op, s.remove)
	manager.Main(op)
}
