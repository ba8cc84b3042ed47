// Leases shows replicas of which one works at a time. They elect it by a Lease. When it
// ends, or does not renew the Lease for 15 s, another one continues.
//
// Programs that end in manager.Main need none of this: they have --leader-elect.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/operator/manager"
)

type Widget struct {
	metav1.ObjectMeta `json:"metadata"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	namespace := flag.String("namespace", "default", "where the Lease is")
	identity := flag.String("identity", "", "the name of this replica")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, manager.Lease{Namespace: *namespace, Name: "widgets",
		Identity: *identity}); err != nil {
		slog.Error("it ends", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string, lease manager.Lease) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	op := operator.New("widgets.example.com")
	operator.OnCreate(op, func(ctx context.Context, r *operator.Request[*Widget]) error {
		r.Patch.Status("by", lease.Identity)
		return nil
	})
	return manager.Elected(ctx, cfg, lease, func(ctx context.Context) error {
		slog.Info("elected", "identity", lease.Identity)
		return op.Run(ctx, cfg)
	})
}
