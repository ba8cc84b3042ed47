package apiserver

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/test/peer"
)

// TestKeyRotation replaces the key of the encryption at rest, in the order of Kubernetes' instructions,
// while clients read. A server reads the file once a minute: the test waits.
func TestKeyRotation(t *testing.T) {
	notShort(t)
	t.Parallel()
	etcd, path := peer.StartEtcd(t), filepath.Join(t.TempDir(), "encryption.yaml")
	writeEncryption(t, path, secretbox("a", "b"))
	flags := append(common, "--encryption-provider-config", path, "--encryption-provider-config-automatic-reload")
	servers := []*peer.Server{
		peer.KeepwatchAPIServerOn(t, etcd, flags...),
		peer.KeepwatchAPIServerOn(t, etcd, append(flags, "--reads=upstream")...),
	}
	var clients []dynamic.ResourceInterface
	for _, s := range servers {
		clients = append(clients, client(t, s, configMapResource))
	}
	fill(t, clients[0], 10)
	checkStored(t, etcd, storedWithKeyA)
	first := list(t, clients[0])
	var watches []*watching
	for _, c := range clients {
		watches = append(watches, startWatch(t, c, first.GetResourceVersion()))
	}
	ctx, stop := context.WithCancel(t.Context())
	readers, reading := errgroup.WithContext(ctx)
	for i, c := range clients {
		readers.Go(func() error { return readAll(reading, c, fmt.Sprintf("server %d", i), len(first.Items)) })
	}
	written := 0
	for i, step := range []struct {
		provider string
		stored   string
		writes   int
	}{
		{secretbox("b", "a"), storedWithKeyB, len(first.Items)},
		{secretbox("b"), storedWithKeyB, 0},
	} {
		writeEncryption(t, path, step.provider)
		for _, s := range servers {
			waitForReload(t, s, i+1)
		}
		if n := rewrite(t, clients[0]); n != step.writes {
			t.Errorf("a rewrite with %s writes %d objects, want %d", step.provider, n, step.writes)
		}
		written += step.writes
		checkStored(t, etcd, step.stored)
	}
	want := summaries(watches[1].events(t, written))
	if got := summaries(watches[0].events(t, written)); !slices.Equal(got, want) {
		t.Errorf("events are\n%v\nupstream\n%v", got, want)
	}
	stop()
	if err := readers.Wait(); err != nil {
		t.Error(err)
	}
}

// waitForReload waits until a server has read its configuration of encryption again n times.
func waitForReload(t *testing.T, s *peer.Server, n int) {
	t.Helper()
	const minutes = 2 * time.Minute
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, minutes, true,
		func(ctx context.Context) (bool, error) {
			m, err := s.Metrics(ctx)
			return err == nil && int(m.Sum("apiserver_encryption_config_controller_automatic_reloads_total",
				peer.Labels{"status": "success"})) >= n, err
		})
	if err != nil {
		t.Fatalf("the server does not read its configuration of encryption again: %v", err)
	}
}

// readAll reads until ctx ends.
func readAll(ctx context.Context, c dynamic.ResourceInterface, name string, n int) error {
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		all, err := c.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
		if len(all.Items) != n {
			return false, fmt.Errorf("%s lists %d objects, want %d", name, len(all.Items), n)
		}
		return false, nil
	})
	if ctx.Err() != nil && wait.Interrupted(err) {
		return nil
	}
	return err
}
