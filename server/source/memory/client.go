package memory

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Client returns a client of the keys below a prefix, for k8s.io/apiserver's etcd3 storage of the resource
// with that prefix: "/registry/pods/". It has no connection and needs no closing. It does not watch: a
// [Source] does.
func (db *DB) Client(prefix string) *kubernetes.Client {
	c := resourceClient{db: db, prefix: strings.TrimSuffix(prefix, "/"), bucket: bucketOf(prefix)}
	general := clientv3.NewCtxClient(context.Background())
	general.KV, general.Lease = kv{c}, lessor{db}
	return &kubernetes.Client{Client: general, Kubernetes: c}
}

// resourceClient is etcd's API for Kubernetes.
type resourceClient struct {
	db     *DB
	prefix string // without the slash at its end, with which each name begins
	bucket bucket
}

var _ kubernetes.Interface = resourceClient{}

// name returns a key without the prefix.
func (c resourceClient) name(key string) (string, error) {
	name, ok := strings.CutPrefix(key, c.prefix)
	if !ok || !strings.HasPrefix(name, "/") {
		return "", fmt.Errorf("the key %q is not below %q", key, c.prefix)
	}
	return name, nil
}

// read returns the state at a revision, and the newest one: responses have the latter.
func (c resourceClient) read(ctx context.Context, revision int64) (then *store.Snapshot, newest int64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	newest = int64(c.db.Revision())
	then, err = c.db.snapshotAt(keepwatch.Revision(revision))
	if err == nil {
		newest = max(newest, int64(then.Revision()))
	}
	return then, newest, err
}

// Get returns the value of a key.
func (c resourceClient) Get(ctx context.Context, key string,
	options kubernetes.GetOptions) (response kubernetes.GetResponse, err error) {
	name, err := c.name(key)
	if err != nil {
		return response, err
	}
	state, newest, err := c.read(ctx, options.Revision)
	if err != nil {
		return response, err
	}
	return kubernetes.GetResponse{KV: c.bucket.recordIn(state, name).keyValue(c.prefix), Revision: newest}, nil
}

// List returns the keys that begin with a prefix, in order.
func (c resourceClient) List(ctx context.Context, prefix string,
	options kubernetes.ListOptions) (response kubernetes.ListResponse, err error) {
	first := prefix
	if options.Continue != "" {
		first = options.Continue
	}
	page, err := c.list(ctx, first, clientv3.GetPrefixRangeEnd(prefix), options.Revision, options.Limit)
	if err != nil {
		return response, err
	}
	response.Revision, response.Count = page.newest, page.count
	for _, r := range page.records {
		response.Kvs = append(response.Kvs, r.keyValue(c.prefix))
	}
	return response, nil
}

// page is a part of a range.
type page struct {
	records []*record
	count   int64 // of the range, at least len(records)
	newest  int64
}

// list returns the first records of the range [from, end). A limit of zero is none.
func (c resourceClient) list(ctx context.Context, from, end string, revision, limit int64) (page, error) {
	name, err := c.name(from)
	if err != nil {
		return page{}, err
	}
	state, newest, err := c.read(ctx, revision)
	if err != nil {
		return page{}, err
	}
	p := page{newest: newest}
	before := func(name string) bool { return c.prefix+name < end }
	c.bucket.from(state, name, func(r *record) bool {
		if !before(r.name) || limit > 0 && int64(len(p.records)) == limit {
			return false
		}
		p.records = append(p.records, r)
		return true
	})
	p.count = int64(state.CountFrom(c.bucket.key(name), func(k keepwatch.Key) bool {
		return k.Namespace == string(c.bucket) && before(k.Name)
	}))
	return p, nil
}

// Count returns the number of keys that begin with a prefix.
func (c resourceClient) Count(ctx context.Context, prefix string, _ kubernetes.CountOptions) (int64, error) {
	page, err := c.list(ctx, prefix, clientv3.GetPrefixRangeEnd(prefix), 0, 1)
	return page.count, err
}

// OptimisticPut writes a value if the key was last written at a revision, zero if it must not exist. It fails as etcd
// does for a value that is too large for a request. The database keeps the value, which the caller must not change.
func (c resourceClient) OptimisticPut(ctx context.Context, key string, value []byte, expected int64,
	options kubernetes.PutOptions) (response kubernetes.PutResponse, err error) {
	name, err := c.name(key)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = checkSize(key, value, expected, options)
	}
	if err != nil {
		return response, err
	}
	done, current, revision, err := c.db.put(c.bucket, name, value, expected, options.LeaseID)
	response.Succeeded, response.Revision = done, int64(revision)
	if !done && options.GetOnFailure {
		response.KV = current.keyValue(c.prefix)
	}
	return response, err
}

// OptimisticDelete deletes a key if it was last written at a revision.
func (c resourceClient) OptimisticDelete(ctx context.Context, key string, expected int64,
	options kubernetes.DeleteOptions) (response kubernetes.DeleteResponse, err error) {
	name, err := c.name(key)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return response, err
	}
	done, current, revision, err := c.db.delete(c.bucket, name, expected)
	response.Succeeded, response.Revision = done, int64(revision)
	if !done && options.GetOnFailure {
		response.KV = current.keyValue(c.prefix)
	}
	return response, err
}
