// Command pictures takes the screenshots of pages that the documentation shows. For that of keepwatch proxy it starts
// keepwatch serve with workloads, the proxy in front of it, and clients of several kinds, and opens the page in
// chromium; for that of keepwatch serve --history a server whose changes are stored.
//
//	go run ./pictures KEEPWATCH PROXY HISTORY     (make pictures)
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/server/proxy"
)

// deadline bounds the whole.
const deadline = 10 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: pictures KEEPWATCH PROXY HISTORY")
		os.Exit(2)
	}
	err := photograph(ctx, os.Args[1], os.Args[2], (*stage).photographProxy)
	if err == nil {
		err = photograph(ctx, os.Args[1], os.Args[3], (*stage).photographPast)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// photograph lets a function write a picture with programs of a folder.
func photograph(ctx context.Context, keepwatch, picture string, take func(s *stage, keepwatch, kubectl,
	picture string)) error {
	dir, err := os.MkdirTemp("", "keepwatch-pictures-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, deadline)
	s := &stage{ctx: ctx, dir: dir}
	defer s.wait()
	defer cancel()

	if keepwatch, err = filepath.Abs(keepwatch); err != nil {
		return err
	}
	if picture, err = filepath.Abs(picture); err != nil {
		return err
	}
	kubectl := filepath.Join(dir, "kubectl")
	if err := os.Symlink(keepwatch, kubectl); err != nil {
		return err
	}
	take(s, keepwatch, kubectl, picture)
	return s.err
}

// photographProxy writes what chromium shows of the page of a proxy to a file, as PNG.
func (s *stage) photographProxy(keepwatch, kubectl, picture string) {
	ctx, dir := s.ctx, s.dir
	s.start(`ready in`, keepwatch, "serve", "--simulate", "--listen", "127.0.0.1:0", "--kubeconfig-out", "cluster")
	s.start(`proxy of`, keepwatch, "proxy", "--kubeconfig", "cluster", "--listen", "127.0.0.1:0", "--kubeconfig-out",
		"proxy")
	s.do(func() error { return deploy(ctx, filepath.Join(dir, "cluster")) })

	address := s.start(`Starting to serve on (\S+)`, kubectl, "proxy", "--port", "0", "--kubeconfig", "proxy")
	page := "http://" + address + "/keepwatch/"
	through := filepath.Join(dir, "proxy")
	s.do(func() error { return list(ctx, through) }) // from here on, the proxy follows these resources
	s.do(func() error { return live(ctx, page+"status") })
	s.do(func() error { return list(ctx, through) })
	s.do(func() error { return inform(ctx, through) })
	s.start(`"type":"SYNCED"`, keepwatch, "watch", "pods", "-A", "--kubeconfig", "proxy")
	s.start(`synced at`, keepwatch, "sync", "deployments.apps,replicasets.apps", "-A", "--kubeconfig", "proxy", "--to",
		"sqlite:state.db")
	s.start(`web-`, kubectl, "get", "pods", "-A", "--watch", "--kubeconfig", "proxy")
	s.photograph(picture, page, 1120)
}

// live waits until all resources on the page are live.
func live(ctx context.Context, status string) error {
	for ; ; time.Sleep(100 * time.Millisecond) {
		all, err := get(ctx, status)
		if err != nil {
			return err
		}
		ready := len(all.Resources) > 0
		for _, r := range all.Resources {
			ready = ready && r.State == reflector.Live
		}
		if ready {
			return nil
		}
	}
}

func get(ctx context.Context, address string) (status proxy.Status, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return status, err
	}
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		return status, err
	}
	err = json.NewDecoder(response.Body).Decode(&status)
	return status, errors.Join(err, response.Body.Close())
}
