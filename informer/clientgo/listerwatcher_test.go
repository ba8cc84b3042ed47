package clientgo_test

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// podsOn lists and watches the pods of a server as client-go's informers do.
func podsOn(s *podtest.Server) cache.ListerWatcher { return podsThrough(s.Config()) }

func podsThrough(cfg *rest.Config) cache.ListerWatcher {
	client := kubernetes.NewForConfigOrDie(cfg)
	return cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.Everything())
}

func sharedOn(s *podtest.Server) *clientgo.Shared {
	return clientgo.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, cache.Indexers{}).(*clientgo.Shared)
}

// hanging returns a list function that does not return before release is closed. heed says
// whether it returns when its context ends.
func hanging(release <-chan struct{}, heed bool) cache.ListWithContextFunc {
	return func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
		if !heed {
			ctx = context.Background()
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil, context.Canceled
	}
}

func noWatch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.New("there is no watch")
}
