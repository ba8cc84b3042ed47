package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/test/peer"
)

// TestServersOnOneEtcd writes through three servers on one etcd at once. Each server shows each write
// at once, and all watches have the same events.
func TestServersOnOneEtcd(t *testing.T) {
	notShort(t)
	etcd := peer.StartEtcd(t)
	servers := []*peer.Server{
		peer.KeepwatchAPIServerOn(t, etcd, common...),
		peer.KeepwatchAPIServerOn(t, etcd, append(common, "--reads=upstream")...),
		peer.KeepwatchAPIServerOn(t, etcd, common...),
	}
	var clients []dynamic.ResourceInterface
	for _, s := range servers {
		clients = append(clients, client(t, s, configMapResource))
	}
	const counters, writes = 2, 40 // by each of as many writers as servers
	for i := range counters {
		if _, err := clients[0].Create(t.Context(), configMap(fmt.Sprint("counter-", i)),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := clients[0].List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var watches []*watching
	for _, c := range clients {
		watches = append(watches, startWatch(t, c, list.GetResourceVersion()))
	}
	var conflicts atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	for writer := range clients {
		group.Go(func() error {
			for n := range writes {
				reads, writes := clients[(writer+n)%len(clients)], clients[(writer+2*n+1)%len(clients)]
				for {
					err := increment(ctx, reads, writes, fmt.Sprint("counter-", n%counters))
					if !errors.IsConflict(err) {
						if err != nil {
							return err
						}
						break
					}
					conflicts.Add(1)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	total := len(clients) * writes
	t.Logf("%d writes, %d conflicts", total, conflicts.Load())
	want := summaries(watches[0].events(t, total))
	for i, w := range watches[1:] {
		if got := summaries(w.events(t, total)); !slices.Equal(got, want) {
			t.Errorf("server %d has events\n%v\nserver 0\n%v", i+1, got, want)
		}
	}
	for i, c := range clients {
		sum := 0
		for n := range counters {
			o, err := c.Get(t.Context(), fmt.Sprint("counter-", n), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			sum += count(o)
		}
		if sum != total {
			t.Errorf("server %d counts %d writes, want %d", i, sum, total)
		}
	}
}

// increment adds one to a counter, and reads it again through the other server.
func increment(ctx context.Context, reads, writes dynamic.ResourceInterface, name string) error {
	o, err := reads.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedField(o.Object, strconv.Itoa(count(o)+1), "data", "count"); err != nil {
		return err
	}
	written, err := writes.Update(ctx, o, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	again, err := reads.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if count(again) < count(written) {
		return fmt.Errorf("a read after the write of %d returns %d", count(written), count(again))
	}
	all, err := reads.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return err
	}
	if len(all.Items) != 1 || count(&all.Items[0]) < count(written) {
		return fmt.Errorf("a list after the write of %d returns %v", count(written), all.Items)
	}
	return nil
}

func count(o *unstructured.Unstructured) int {
	text, _, _ := unstructured.NestedString(o.Object, "data", "count")
	n, _ := strconv.Atoi(text)
	return n
}
