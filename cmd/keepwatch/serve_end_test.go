package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/controlplane"
)

// A server whose etcd falls silent during the start ends when it is asked to, and not when the library
// gives up its start after a minute.
func TestServeEndsDuringStart(t *testing.T) {
	owner, err := controlplane.New(controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- owner.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-owner.Ready()
	socket := strings.TrimPrefix(owner.EtcdCluster().Servers[0], "unix://")
	for _, after := range []int64{0, 500, 3_000, 10_000} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			etcd := newSilence(t, socket, after)
			p := startProcess(t, "serve", "--listen", "127.0.0.1:0", "--kubeconfig-out", filepath.Join(t.TempDir(), "kubeconfig"),
				"--etcd-servers", "http://"+etcd.Addr().String())
			<-etcd.silent
			p.Process.Signal(syscall.SIGTERM)
			begin := time.Now()
			if code := p.exit(t); code != 0 {
				t.Errorf("exit %d: %.2000s", code, p.stderr)
			}
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("it takes %v to end", took)
			}
			if strings.Contains(p.stderr.String(), "ready") {
				t.Error("it was ready before")
			}
		})
	}
}

// silence passes connections on until the far side has said so many bytes, and nothing after.
type silence struct {
	net.Listener
	silent chan struct{}

	mu   sync.Mutex
	left int64
}

func newSilence(t *testing.T, socket string, after int64) *silence {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &silence{Listener: listener, silent: make(chan struct{}), left: after + 1}
	var conns sync.WaitGroup
	t.Cleanup(conns.Wait)
	t.Cleanup(func() { listener.Close() })
	conns.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", socket)
			if err != nil {
				near.Close()
				continue
			}
			conns.Go(func() {
				defer far.Close()
				io.Copy(far, near)
			})
			conns.Go(func() {
				defer near.Close()
				io.Copy(quiet{s, near}, far)
			})
		}
	})
	return s
}

// quiet is one connection's near side.
type quiet struct {
	*silence
	near net.Conn
}

func (q quiet) Write(data []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.left > 0 {
		if q.left -= int64(len(data)); q.left <= 0 {
			close(q.silent)
		}
	}
	if q.left <= 0 {
		return len(data), nil // swallowed
	}
	return q.near.Write(data)
}
