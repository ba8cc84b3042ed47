package controlplane_test

import (
	"context"
	"fmt"
	"log"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

func Example() {
	server, err := controlplane.New(controlplane.Options{}) // temporary data, a free port
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	select {
	case <-server.Ready():
	case err := <-ended:
		log.Fatal(err)
	}

	client, err := kubernetes.NewForConfig(server.RESTConfig())
	if err != nil {
		log.Fatal(err)
	}
	ns, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ns.Name, ns.Status.Phase)

	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output: default Active
}
