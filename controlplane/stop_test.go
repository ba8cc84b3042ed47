package controlplane_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/controlplane"
)

// Open watches, read or not, don't hold the server up, and end with it.
func TestEndsWithOpenWatches(t *testing.T) {
	server := start(t, controlplane.Options{})
	c := connect(t, server.RESTConfig())
	read := must(c.typed.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{}))(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range read.ResultChan() {
		}
	}()
	for range 20 {
		idle := must(c.typed.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{}))(t)
		defer idle.Stop()
	}
	server.stop()
	<-ended
}

// An end that comes during the start is obeyed, and is no error.
func TestEndsDuringStart(t *testing.T) {
	server := must(controlplane.New(controlplane.Options{}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := server.Run(ctx); err != nil {
		t.Errorf("it ended with: %v", err)
	}
	if err := server.Run(context.Background()); err == nil {
		t.Error("a server runs twice")
	}
	if server.RESTConfig() != nil || server.DataDir() != "" {
		t.Error("a server that never was ready tells where it is")
	}
}
