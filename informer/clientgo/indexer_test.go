package clientgo

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/keepwatch/keepwatch/informer/internal/follow"
	"github.com/keepwatch/keepwatch/store"
)

// An index that AddIndexers is about to add does not exist yet: a reader that is faster gets an error.
func TestIndexThatIsBeingAdded(t *testing.T) {
	source := fcache.NewFakeControllerSource()
	defer source.Shutdown()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u"}}
	source.Add(pod)
	inf := newShared(source, &corev1.Pod{}, 0, cache.Indexers{}, NewGroup())
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); inf.Run(stop) }()
	defer func() { close(stop); <-ended }()
	<-inf.follower.Synced()
	first := map[string]store.IndexFunc{"namespace": follow.IndexFunc("namespace", cache.MetaNamespaceIndexFunc)}
	if err := inf.follower.AddIndexes(first); err != nil { // what AddIndexers does first
		t.Fatal(err)
	}
	if found, err := inf.GetIndexer().Index("namespace", pod); err == nil {
		t.Errorf("found %v", found)
	}
}
