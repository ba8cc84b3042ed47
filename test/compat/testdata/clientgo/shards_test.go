//go:build k8s_v0.38

package clientgo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// Each pod is in the cache of one shard's informer, also if the informers may read the server themselves.
func TestShards(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 12 {
		name := fmt.Sprintf("pod%d", i)
		pods = append(pods, podtest.Pod(name, podtest.UID(name)))
	}
	s := podtest.NewServer(t, pods...)
	cfg, direct := clientgo.Direct(s.Config())
	const shards = 3
	shardOf := map[string]int{}
	for shard := range shards {
		selector, err := sharding.NewShardRangeSelector("object.metadata.uid", shard, shards)
		if err != nil {
			t.Fatal(err)
		}
		inf := clientgo.NewGroup(direct).NewSharedIndexInformer(podsThrough(cfg), &corev1.Pod{}, 0, cache.Indexers{})
		if err := inf.SetShardSelector(selector); err != nil {
			t.Fatal(err)
		}
		podtest.Run(t, inf)
		podtest.WaitForSync(t, inf)
		if inf.SetShardSelector(nil) == nil {
			t.Error("a running informer has another shard")
		}
		for _, o := range inf.GetStore().List() {
			name := o.(*corev1.Pod).Name
			if other, ok := shardOf[name]; ok {
				t.Errorf("%s is in shards %d and %d", name, other, shard)
			}
			shardOf[name] = shard
			if ok, err := selector.Matches(o.(*corev1.Pod)); !ok || err != nil {
				t.Errorf("shard %d has %s (%v)", shard, name, err)
			}
		}
	}
	if len(shardOf) != len(pods) {
		t.Errorf("%d pods are in a shard, of %d", len(shardOf), len(pods))
	}
}

// The factory runs with a context, and says why informers have not synced.
func TestDynamicFactoryWithContext(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"))
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	factory := clientgo.NewDynamicSharedInformerFactory(client, 0)
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	inf := factory.ForResource(pods).Informer()
	ctx, cancel := context.WithCancelCause(t.Context())
	factory.StartWithContext(ctx)
	if result := factory.WaitForCacheSyncWithContext(ctx); result.AsError() != nil || !result.Synced[pods] {
		t.Errorf("%+v", result)
	}
	reason := errors.New("no longer needed")
	cancel(reason)
	factory.Shutdown()
	if !inf.IsStopped() {
		t.Error("the informer runs after the shutdown")
	}

	factory = clientgo.NewDynamicSharedInformerFactory(client, 0)
	factory.ForResource(pods)
	factory.StartWithContext(ctx)
	if result := factory.WaitForCacheSyncWithContext(ctx); !errors.Is(result.AsError(), reason) || result.Synced[pods] {
		t.Errorf("%+v", result)
	}
	factory.Shutdown()
}
