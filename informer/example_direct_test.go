package informer_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer"
)

// Informers that somebody else makes read the server themselves. With
// controller-runtime it is
//
//	cache.Options{NewInformer: group.NewSharedIndexInformer}
func ExampleDirect() {
	cfg := &rest.Config{Host: "https://localhost"} // of clientcmd, or rest.InClusterConfig
	group := informer.NewGroup(informer.Direct(cfg), informer.DropManagedFields())

	clients := kubernetes.NewForConfigOrDie(cfg) // after Direct
	pods := cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "pods", "web", fields.Everything())
	inf := group.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, cache.Indexers{})
	fmt.Println(inf.HasSynced())
	// Output: false
}

// Objects that are rarely looked at are kept as they came.
func ExampleCompact() {
	pods, err := informer.New[*corev1.Pod](&rest.Config{Host: "https://localhost"}, informer.Compact())
	fmt.Println(pods.State(), err)
	// Output: STOPPED <nil>
}
