package informer_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/informer"
	"github.com/keepwatch/keepwatch/informer/health"
)

// Without client-go's types.
func ExampleNew() {
	var cfg *rest.Config // of clientcmd, or rest.InClusterConfig
	follow := func(ctx context.Context) error {
		pods, err := informer.New[*corev1.Pod](cfg,
			informer.Namespace("web"), informer.Labels("app=web"),
			informer.Index("node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} }),
		)
		if err != nil {
			return err
		}
		_, err = pods.Handle(func(ctx context.Context, c informer.Change[*corev1.Pod]) error {
			fmt.Println(c.Type, c.Object.Name)
			return nil // after an error, the change is delivered again
		})
		if err != nil {
			return err
		}
		go func() {
			<-pods.Synced()
			now := pods.Snapshot() // consistent over all indexes
			for pod := range now.ByIndex("node", "n1") {
				fmt.Println(pod.Name)
			}
		}()
		return pods.Run(ctx)
	}
	_ = follow
}

// Custom resources, and any others, without a Go type.
func ExampleResource() {
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	objects, err := informer.New[*metav1.PartialObjectMetadata](&rest.Config{Host: "https://localhost"},
		informer.Resource(widgets))
	fmt.Println(objects.State(), err)
	// Output: STOPPED <nil>
}

// Compact is for objects that are rarely read.
func ExampleCompact() {
	pods, err := informer.New[*corev1.Pod](&rest.Config{Host: "https://localhost"}, informer.Compact())
	fmt.Println(pods.State(), err)
	// Output: STOPPED <nil>
}

// A group is a health check and a Prometheus collector.
func ExampleInGroup() {
	group := health.NewGroup()
	if _, err := informer.New[*corev1.Pod](&rest.Config{Host: "https://localhost"}, informer.InGroup(group)); err != nil {
		log.Fatal(err)
	}
	prometheus.NewRegistry().MustRegister(group)
	http.NewServeMux().Handle("/healthz", group)
	fmt.Println(group.Check(nil))
	// Output: <nil>
}

// An audit compares the cache with the server, and Repair corrects a difference.
func ExampleInformer_Audit() {
	audit := func(ctx context.Context, pods *informer.Informer[*corev1.Pod]) error {
		result, err := pods.Audit(ctx)
		if err != nil {
			return err
		}
		if !result.Equal() {
			log.Printf("missing %v, extra %v, different %v", result.Missing, result.Extra, result.Different)
			pods.Repair()
		}
		return nil
	}
	_ = audit
}
