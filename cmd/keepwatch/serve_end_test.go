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

	"github.com/keepwatch/keepwatch/server/controlplane"
)

// A server whose etcd stops answering during the start ends after SIGTERM, and does not wait for the
// library's timeout of a minute.
func TestServeEndsDuringStart(t *testing.T) {
	parallel(t)
	owner, err := controlplane.New(controlplane.Options{TemporaryEtcd: true})
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
			etcd := newSilentProxy(t, socket, after)
			p := startProcess(t, "serve", "--listen", "127.0.0.1:0", "--kubeconfig-out", filepath.Join(t.TempDir(),
				"kubeconfig"),
				"--etcd-servers", "http://"+etcd.Addr().String())
			<-etcd.silent
			p.Process.Signal(syscall.SIGTERM)
			begin := time.Now()
			if code := p.exit(t); code != 0 {
				t.Errorf("exit %d: %.2000s", code, p.stderr)
			}
			if took := time.Since(begin); took > time.Minute {
				t.Errorf("the end takes %v", took)
			}
			if strings.Contains(p.stderr.String(), "ready") {
				t.Error("the server was ready before")
			}
		})
	}
}

// silentProxy forwards connections until the server has sent a number of bytes, and then drops all
// bytes of the server.
type silentProxy struct {
	net.Listener
	silent chan struct{}

	mu        sync.Mutex
	remaining int64
}

func newSilentProxy(t *testing.T, socket string, after int64) *silentProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &silentProxy{Listener: listener, silent: make(chan struct{}), remaining: after + 1}
	var conns sync.WaitGroup
	t.Cleanup(conns.Wait)
	t.Cleanup(func() { listener.Close() })
	conns.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", socket)
			if err != nil {
				client.Close()
				continue
			}
			conns.Go(func() {
				defer server.Close()
				io.Copy(server, client)
			})
			conns.Go(func() {
				defer client.Close()
				io.Copy(clientConn{s, client}, server)
			})
		}
	})
	return s
}

// clientConn is the client's side of a connection.
type clientConn struct {
	*silentProxy
	client net.Conn
}

func (c clientConn) Write(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.remaining > 0 {
		if c.remaining -= int64(len(data)); c.remaining <= 0 {
			close(c.silent)
		}
	}
	if c.remaining <= 0 {
		return len(data), nil // dropped
	}
	return c.client.Write(data)
}
