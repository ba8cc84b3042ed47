// Informed runs informers of one kind, of Keepwatch or of client-go. For each command on
// standard input it writes its measurements to standard output, as a line of JSON.
//
//	sync            start, and wait until every handler has the initial list
//	heap            the heap after garbage collection
//	read            get, list and look up
//	relist          let the server's history expire, and wait for the list
//	count           begin to count updates; the next count reports them
//	updates         wait until each informer has received an update
//	requests        the lists so far
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the server")
	by := flag.String("by", "", "client-go, hook, direct or compact")
	form := flag.String("form", "", "protobuf, json, unstructured or metadata")
	count := flag.Int("informers", 1, "how many informers; several are of one namespace each")
	namespaces := flag.Int("namespaces", 1, "how many namespaces there are")
	flag.Parse()
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	if err := run(*kubeconfig, *by, *form, *count, *namespaces); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, by, form string, count, namespaces int) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &wire{}
	cfg.Wrap(w.wrap)
	all, err := makeInformers(cfg, by, form, count, namespaces)
	if err != nil {
		return err
	}
	s := &subject{wire: w, informers: all}
	commands := map[string]func(context.Context) (report, error){
		"sync": s.sync, "heap": s.heap, "read": s.read, "relist": s.relist,
		"count": s.count, "updates": s.updates, "requests": s.requests,
	}
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		do := commands[in.Text()]
		if do == nil {
			return fmt.Errorf("unknown command %q", in.Text())
		}
		r, err := do(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", in.Text(), err)
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}
