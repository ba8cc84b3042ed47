package clients

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/test/peer"
)

// kubectl is kubectl get --watch, which ends with its watch. A loop runs it again, and it
// begins with a new list.
type kubectl struct {
	path, kubeconfig, home string

	mu     sync.Mutex
	folded state // of the run at hand
	wrong  error
}

func newKubectl(t *testing.T, kubeconfig string) *kubectl {
	t.Helper()
	k := &kubectl{path: peer.Build(t, peer.Kubectl), kubeconfig: kubeconfig, home: t.TempDir(), folded: state{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return k
}

func (k *kubectl) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := k.once(ctx); err != nil {
			k.mu.Lock()
			k.wrong = err
			k.mu.Unlock()
			return
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
		}
	}
}

// once is one run of kubectl. Its exit code does not matter: its connections are cut.
func (k *kubectl) once(ctx context.Context) error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	process, err := peer.Start(peer.Command{
		Path: k.path, Args: []string{"get", "pods", "--namespace", namespace, "--watch", "--output-watch-events", "-o",
			"json"},
		Env: peer.KubectlEnv(k.kubeconfig, k.home), Log: filepath.Join(k.home, "log"), Stdout: in,
	})
	in.Close()
	if err != nil {
		return err
	}
	defer process.Kill()
	defer context.AfterFunc(ctx, process.Kill)()
	k.mu.Lock()
	k.folded = state{}
	k.mu.Unlock()
	return k.fold(json.NewDecoder(out))
}

// fold folds events until the run ends.
func (k *kubectl) fold(events *json.Decoder) error {
	for {
		var event struct {
			Type   string
			Object metav1.PartialObjectMetadata // or a status without a name
		}
		err := events.Decode(&event)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		k.mu.Lock()
		switch event.Type {
		case "ADDED", "MODIFIED":
			k.folded[event.Object.GetName()] = stateOf(&event.Object)
		case "DELETED":
			delete(k.folded, event.Object.GetName())
		}
		k.mu.Unlock()
	}
}

func (k *kubectl) states() ([]state, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return []state{maps.Clone(k.folded)}, k.wrong
}
