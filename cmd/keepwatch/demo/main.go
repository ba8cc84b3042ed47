// Command demo shows what Keepwatch is for, in half a minute and with nothing but its own program: a stream of objects
// is killed, objects change and vanish while nobody watches, the server loses its history, and the stream continues
// with exactly the difference. It prints the commands that it runs. Everything is in a temporary folder, which is
// removed at the end.
//
//	go run ./cmd/keepwatch/demo [PATH OF keepwatch]     (make demo)
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	keepwatch := "bin/keepwatch"
	if len(os.Args) > 1 {
		keepwatch = os.Args[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := demonstrate(ctx, keepwatch); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// stepTimeout bounds each wait for a program.
const stepTimeout = 5 * time.Minute

func demonstrate(ctx context.Context, keepwatch string) error {
	keepwatch, err := filepath.Abs(keepwatch)
	if err != nil {
		return err
	}
	if _, err := os.Stat(keepwatch); err != nil {
		return fmt.Errorf("there is no program %s: run make build first", keepwatch)
	}
	dir, err := os.MkdirTemp("", "keepwatch-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// The programs are links, so that the commands read as a person types them.
	if err := os.Symlink(keepwatch, filepath.Join(dir, "keepwatch")); err != nil {
		return err
	}
	if err := os.Symlink(keepwatch, filepath.Join(dir, "kubectl")); err != nil {
		return err
	}
	s := &shell{ctx: ctx, dir: dir}
	defer s.killAll()
	return story(s)
}

// story is what the demo shows.
func story(s *shell) error {
	s.say("A Kubernetes API server of our own, with its data in a folder (in %s):", s.dir)
	server := s.start(
		"keepwatch serve --data-dir data --listen 127.0.0.1:0 --controllers=false --kubeconfig-out kubeconfig")
	address := server.waitFor(`at https://([0-9.:]+)`)
	for _, fruit := range []string{"apple", "pear", "plum"} {
		s.run("kubectl create configmap %s --from-literal color=green", fruit)
	}

	s.say("One process streams the objects, another one stores them as SQL. (… is what is not shown here.)")
	watch := s.start("keepwatch watch configmaps --state state")
	watch.waitFor(`"type":"(SYNCED)"`)
	store := s.start("keepwatch sync configmaps --to sqlite:fruit.db")
	store.waitFor(`(synced) at`)
	s.say("Both are killed.")
	s.kill(watch)
	s.kill(store)

	s.say("While nobody watches, one object changes, and one is deleted.")
	s.run(`kubectl patch configmap apple --type merge -p '{"data":{"color":"red"}}'`)
	s.run("kubectl delete configmap plum")
	s.say("The server's history expires, as it does every five minutes in a cluster, and the server is killed.")
	s.compact("data/run/etcd.sock")
	s.kill(server)
	s.start("keepwatch serve --data-dir data --listen %s --controllers=false --kubeconfig-out kubeconfig",
		address).waitFor(`(ready) in`)

	s.say("The stream starts again. The server says 410: it no longer has what happened. The stream prints exactly the difference:")
	s.run("keepwatch watch configmaps --state state --until-synced")
	s.say("The same in SQL, where a deleted object keeps its last state:")
	s.run("keepwatch sync configmaps --to sqlite:fruit.db --until-synced")
	s.query("fruit.db",
		`SELECT name, object -> 'data' ->> 'color' AS color, valid_from, valid_to, deleted FROM resources ORDER BY id`)
	s.say("The change and the deletion have arrived; pear, which did not change, was not sent again. The demo removes its folder.")
	return s.err
}
