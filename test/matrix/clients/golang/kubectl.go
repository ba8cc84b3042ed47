package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// kubectlGet is kubectl get --watch, once. It ends with its watch.
func kubectlGet(ctx context.Context, t target) error {
	return translate(ctx, t, func(in *json.Decoder) error {
		var e struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		if err := in.Decode(&e); err != nil {
			return err
		}
		report(event(e.Type, &e.Object))
		return nil
	}, "get", "configmaps", "--namespace", t.namespace, "--watch", "--output-watch-events", "-o", "json")
}

// kubectlWait is kubectl wait, once, for the last write of a cell's writer.
func kubectlWait(ctx context.Context, t target) error {
	return translate(ctx, t, func(in *json.Decoder) error {
		var o metav1.PartialObjectMetadata
		if err := in.Decode(&o); err != nil {
			return err
		}
		report(event("MODIFIED", &o))
		return nil
	}, "wait", "configmap/"+clients.Last, "--namespace", t.namespace, "--for", "jsonpath={.data.done}=yes", "--timeout",
		"1h", "-o", "json")
}

// translate runs the program and prints each item of its output, until it ends.
func translate(ctx context.Context, t target, item func(*json.Decoder) error, args ...string) error {
	command := exec.CommandContext(ctx, t.program, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+t.kubeconfig)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	for in := json.NewDecoder(out); err == nil; {
		err = item(in)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if ended := command.Wait(); ended != nil && ctx.Err() == nil {
		err = errors.Join(err, fmt.Errorf("%s %s: %w", t.program, args[0], ended))
	}
	return err
}
