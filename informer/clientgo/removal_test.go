package clientgo_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch/informer"
	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// gatedPod is a pod whose decoding the test can block.
type gatedPod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              gatedSpec `json:"spec"`
}

func (p *gatedPod) DeepCopyObject() runtime.Object { return p }

type gatedSpec struct{}

// gate blocks decoding, if set: decoding sends on entered, and waits for released.
type gate struct{ entered, released chan struct{} }

var decodeGate atomic.Pointer[gate]

func (gatedSpec) UnmarshalJSON([]byte) error {
	if g := decodeGate.Load(); g != nil {
		select {
		case g.entered <- struct{}{}:
		case <-g.released:
		}
		<-g.released
	}
	return nil
}

// A handler that is removed while an object is decoded for it is not called.
func TestNoCallbackAfterRemoval(t *testing.T) {
	own := runtime.NewScheme()
	own.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("Pod"), &gatedPod{})
	var many []*corev1.Pod // more than a compact informer caches decoded
	for n := range 100 {
		many = append(many, podtest.Pod(fmt.Sprintf("p%03d", n)))
	}
	// removed adds a handler to an informer and removes it while the first object is decoded.
	removed := func(t *testing.T, add func() (remove func(), done <-chan struct{})) {
		g := &gate{make(chan struct{}), make(chan struct{})}
		decodeGate.Store(g)
		defer decodeGate.Store(nil)
		remove, done := add()
		<-g.entered
		remove()
		close(g.released)
		<-done
	}
	t.Run("typed", func(t *testing.T) {
		inf, err := informer.New[*gatedPod](podtest.NewServer(t, many...).Config(), informer.Scheme(own), informer.Compact())
		if err != nil {
			t.Fatal(err)
		}
		podtest.RunTyped(t, inf)
		<-inf.Synced()
		removed(t, func() (func(), <-chan struct{}) {
			r, err := inf.Handle(func(_ context.Context, c informer.Change[*gatedPod]) error {
				t.Errorf("called for %s", c.Object.Name)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return r.Remove, r.Done()
		})
	})
	t.Run("clientgo", func(t *testing.T) {
		s := podtest.NewServer(t, many...)
		cfg, direct := clientgo.Direct(s.Config())
		group := clientgo.NewGroup(direct, clientgo.Compact())
		inf := group.NewSharedIndexInformer(podsListWatch(cfg), &gatedPod{}, 0, nil)
		podtest.Run(t, inf)
		podtest.WaitForSync(t, inf)
		removed(t, func() (func(), <-chan struct{}) {
			events := &recorder{react: func(line string) { t.Errorf("called: %s", line) }}
			r := handle(t, inf, events)
			remove := func() {
				if err := inf.RemoveEventHandler(r); err != nil {
					t.Error(err)
				}
			}
			return remove, r.(interface{ ShutdownChan() <-chan struct{} }).ShutdownChan()
		})
	})
}
