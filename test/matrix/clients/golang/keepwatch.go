package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// keepwatchWatch is the command keepwatch watch.
func keepwatchWatch(ctx context.Context, t target) error {
	return translate(ctx, t, func(in *json.Decoder) error {
		var line struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		if err := in.Decode(&line); err != nil {
			return err
		}
		switch line.Type {
		case "ADDED", "MODIFIED", "DELETED":
			report(event(line.Type, &line.Object))
		default: // SYNCED, GAP
			report(clients.Line{Type: line.Type})
		}
		return nil
	}, "watch", "configmaps", "--namespace", t.namespace, "--kubeconfig", t.kubeconfig)
}

// keepwatchOperator is an operator with a handler of events.
func keepwatchOperator(ctx context.Context, t target) error {
	op := operator.New("configmaps", operator.Namespaces(t.namespace),
		operator.Logger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	operator.OnEvent(op, func(_ context.Context, r *operator.Request[*corev1.ConfigMap]) error {
		kind := r.WatchEvent
		if kind == "" {
			kind = "ADDED" // of the first list
		}
		report(event(kind, r.Object))
		return nil
	})
	return op.Run(ctx, t.config)
}
