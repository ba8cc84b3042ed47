package kine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keepwatch/keepwatch/test/peer"
)

// TestRecreation checks that the finding docs/findings/kine-recreated-key.md is still true: on SQL, the revision in
// kine's answer to the creation of a key that was deleted before is not always the key's.
func TestRecreation(t *testing.T) {
	const rounds = 2000
	sqlite := peer.StartKine(t, peer.KineSQLite)
	wrong := recreate(t, sqlite.Endpoint, 8, rounds)
	if wrong == "" {
		t.Errorf("kine on SQLite has answered %d creations with the key's revision: the finding is outdated", rounds)
	}
	t.Log("kine on SQLite, 8 clients:", wrong)
	for _, right := range []struct {
		name     string
		endpoint peer.Endpoint
		clients  int
	}{
		{"kine on SQLite, one client", sqlite.Endpoint, 1},
		{"kine on NATS, 8 clients", peer.StartKine(t, peer.KineNATS).Endpoint, 8},
		{"etcd, 8 clients", peer.StartEtcd(t).Endpoint, 8},
	} {
		if wrong := recreate(t, right.endpoint, right.clients, 200); wrong != "" {
			t.Errorf("%s: %s", right.name, wrong)
		}
	}
}

// recreate has clients create and delete a key each, as an API server does, until the answer to a creation has
// another revision than the key, or until that was right for a number of rounds. It returns what was wrong.
func recreate(t *testing.T, endpoint peer.Endpoint, clients, rounds int) string {
	t.Helper()
	ctx, found := context.WithCancel(t.Context())
	defer found()
	var left atomic.Int64
	left.Store(int64(rounds))
	var wrong atomic.Pointer[string]
	var running sync.WaitGroup
	for i := range clients {
		client, err := endpoint.Client()
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			defer client.Close()
			key := fmt.Sprintf("/registry/recreated-by-%d/%d", clients, i) // another call may have ended with its key created
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				text, err := once(ctx, client, key)
				switch {
				case ctx.Err() != nil:
				case err != nil:
					t.Error(err)
					return
				case text != "":
					wrong.CompareAndSwap(nil, &text)
					found()
				}
			}
		})
	}
	running.Wait()
	if text := wrong.Load(); text != nil {
		return *text
	}
	return ""
}

// once creates a key, compares its revision with that of the answer, and deletes it.
func once(ctx context.Context, client *clientv3.Client, key string) (wrong string, err error) {
	created, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key,
		"value")).Commit()
	if err != nil || !created.Succeeded {
		return "", fmt.Errorf("%s is not created: %v", key, err)
	}
	got, err := client.Get(ctx, key)
	if err != nil || len(got.Kvs) != 1 {
		return "", fmt.Errorf("%s is not read: %v", key, err)
	}
	revision := got.Kvs[0].ModRevision
	if created.Header.Revision != revision {
		return fmt.Sprintf("the creation of %s was answered with revision %d, and the key has %d", key,
			created.Header.Revision, revision), nil
	}
	deleted, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpDelete(key)).Else(clientv3.OpGet(key)).Commit()
	if err != nil || !deleted.Succeeded {
		return "", fmt.Errorf("%s is not deleted: %v", key, err)
	}
	return "", nil
}
