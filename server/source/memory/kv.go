package memory

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// kv is etcd's general API, as far as k8s.io/apiserver's storage uses it: ranges.
type kv struct{ resourceClient }

var _ clientv3.KV = kv{}

// Get returns the keys of a range, or the value of one key.
func (k kv) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	op := clientv3.OpGet(key, options...)
	if op.IsSortSet() {
		return nil, errors.ErrUnsupported
	}
	end := string(op.RangeBytes())
	if end == "" {
		end = string(op.KeyBytes()) + "\x00" // the key alone
	}
	page, err := k.list(ctx, string(op.KeyBytes()), end, op.Rev(), op.Limit())
	if err != nil {
		return nil, err
	}
	response := &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: page.newest}, Count: page.count}
	if op.IsCountOnly() {
		return response, nil
	}
	response.More = page.count > int64(len(page.records))
	for _, r := range page.records {
		found := r.keyValue(k.prefix)
		if op.IsKeysOnly() {
			found.Value = nil
		}
		response.Kvs = append(response.Kvs, found)
	}
	return response, nil
}

// GetStream returns Get's response as the only part of a stream.
func (k kv) GetStream(ctx context.Context, key string, options ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	response, err := k.Get(ctx, key, options...)
	if err != nil {
		return nil, err
	}
	parts := make(chan clientv3.RangeStreamResponse, 1)
	parts <- clientv3.RangeStreamResponse{RangeResponse: (*pb.RangeResponse)(response)}
	close(parts)
	return parts, nil
}

func (kv) Put(context.Context, string, string, ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return nil, errors.ErrUnsupported
}

func (kv) Delete(context.Context, string, ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return nil, errors.ErrUnsupported
}

func (kv) Compact(context.Context, int64, ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	return nil, errors.ErrUnsupported
}

func (kv) Do(context.Context, clientv3.Op) (clientv3.OpResponse, error) {
	return clientv3.OpResponse{}, errors.ErrUnsupported
}

// Txn returns a transaction that cannot be committed.
func (kv) Txn(context.Context) clientv3.Txn { return unsupportedTxn{} }

type unsupportedTxn struct{}

func (t unsupportedTxn) If(...clientv3.Cmp) clientv3.Txn  { return t }
func (t unsupportedTxn) Then(...clientv3.Op) clientv3.Txn { return t }
func (t unsupportedTxn) Else(...clientv3.Op) clientv3.Txn { return t }

func (unsupportedTxn) Commit() (*clientv3.TxnResponse, error) { return nil, errors.ErrUnsupported }
