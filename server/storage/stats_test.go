package storage_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
	"github.com/keepwatch/keepwatch/store"
)

// Stats have the sizes of the objects from the first call on, which an API server makes while the storage
// starts. Objects without a size would occupy as many seats as the largest possible.
func TestStatsDuringTheStart(t *testing.T) {
	t.Parallel()
	client := runEtcd(t)
	total := 0
	for i, name := range []string{"a", "b", "c"} {
		value := must(runtime.Encode(corePods{}.codec(), fleet.Pod(i*100_000)))(t)
		put(t, client, name, value)
		total += len(value)
	}
	s := open(t, client, corePods{}, store.Options{})
	type result struct {
		stats apistorage.Stats
		err   error
	}
	got := make(chan result)
	go func() {
		stats, err := s.Stats(t.Context())
		got <- result{stats, err}
	}()
	t.Cleanup(s.Start(func(err error) { t.Error(err) }))
	want := apistorage.Stats{ObjectCount: 3, EstimatedAverageObjectSizeBytes: int64(total / 3)}
	if r := <-got; r.err != nil || r.stats != want {
		t.Errorf("Stats returns %+v, %v, want %+v", r.stats, r.err, want)
	}
}
