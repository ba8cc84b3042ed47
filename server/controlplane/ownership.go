package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ownerKey marks an etcd as this server's own. Its value is random and written once: it identifies
// the history that began with it.
const ownerKey = "/keepwatch/owner"

// kineKeys exist in a new kine before the first write.
var kineKeys = []string{"compact_rev_key", "compact_rev_key_apiserver", "/registry/health"}

// claim decides whether the etcd is this server's own, and allows writes to one that is. An etcd with
// ownerKey is, an empty one, and any one if own is true; claim writes ownerKey to the latter two.
// Otherwise it writes nothing.
func (d *etcdDatabase) claim(ctx context.Context, own bool) error {
	marked, err := d.client.Get(ctx, ownerKey)
	if errors.Is(err, rpctypes.ErrPermissionDenied) && !own {
		d.foreign = ownerKey // a user without permission to read the key does not own the etcd
		return nil
	}
	if err != nil {
		return err
	}
	if len(marked.Kvs) == 0 && !own {
		if d.foreign, err = foreignKey(ctx, d.client); err != nil || d.foreign != "" {
			return err
		}
	}
	d.writes.allowed.Store(true)
	if len(marked.Kvs) > 0 {
		return nil
	}
	_, err = d.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(ownerKey), "=", 0)).
		Then(clientv3.OpPut(ownerKey, rand.Text())).
		Commit()
	if own && errors.Is(err, rpctypes.ErrNoSpace) {
		return nil // the next start marks it
	}
	return err
}

// foreignKey returns a key of an etcd without ownerKey; empty if the etcd has no keys.
func foreignKey(ctx context.Context, client *clientv3.Client) (string, error) {
	all, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithLimit(int64(len(kineKeys)+1)))
	if err != nil {
		return "", err
	}
	for _, kv := range all.Kvs {
		if !slices.Contains(kineKeys, string(kv.Key)) {
			return string(kv.Key), nil
		}
	}
	return "", nil
}
