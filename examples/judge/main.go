// Judge shows an operator with a mistake that keepwatch judge finds: each Widget gets a ConfigMap, whose name the
// server generates. If the answer is lost, or the process dies before it has stored the name, it creates a second one.
// With --fixed, the name is a function of the Widget's, and creating it again does no harm.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/operator"
)

type Widget struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Size int `json:"size"`
	} `json:"spec"`
	Status struct {
		Child string `json:"child"`
	} `json:"status"`
}

// parent makes a ConfigMap of each Widget.
type parent struct {
	client kubernetes.Interface
	fixed  bool
}

func (p *parent) adopt(ctx context.Context, r *operator.Request[*Widget]) error {
	if r.Object.Status.Child != "" {
		return nil
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: r.Object.Name + "-", OwnerReferences: []metav1.OwnerReference{r.OwnerReference()},
	}}
	if p.fixed {
		child.Name, child.GenerateName = r.Object.Name, ""
	}
	made, err := p.client.CoreV1().ConfigMaps(r.Object.Namespace).Create(ctx, child, metav1.CreateOptions{})
	if p.fixed && apierrors.IsAlreadyExists(err) {
		made, err = child, nil
	}
	if err != nil {
		return err
	}
	r.Patch.Status("child", made.Name)
	return nil
}

func run() error {
	fixed := flag.Bool("fixed", false, "use a name that does not change")
	flag.Parse()
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	op := operator.New("widgets.example.com")
	operator.OnCreate(op, (&parent{client, *fixed}).adopt, operator.Backoff(time.Second))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return operator.Run(ctx, cfg, op)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
