package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/keepwatch/keepwatch"
)

var _ keepwatch.Source = (*Source)(nil)

// Options say what to read. Prefix is required, all else may be zero.
type Options struct {
	// Prefix is what the resource's storage keys begin with, for example
	// "/registry/pods/". It must end in "/". What follows is "namespace/name", or the
	// name of what has no namespace.
	Prefix string

	// Accept reports whether a key is one of the resource. A key that it does not accept is
	// left out of lists and watches, as if etcd did not have it. It is called for each key
	// that etcd sends, by several goroutines at a time. Nil accepts every key.
	Accept func(key keepwatch.Key) bool

	// Decode makes the object that is handed on of what etcd holds: called once for
	// each write, by several goroutines at a time. The object must have o's key, UID and
	// revision, which it gets by embedding o, and with them Version and Equal. o does
	// not keep value, but the object may. An error makes it [Undecodable]. Nil hands on
	// each *[Object] as it is.
	Decode func(o *Object, value []byte) (keepwatch.Object, error)

	// Past is shared by sources of the same etcd, so that each notices with what the others
	// have seen that etcd's history was replaced. Nil is one of the source's own.
	LastWrite *LastWrite

	// PageSize is how many keys a page of a list has at most; 0 means 500 on the first
	// one, and then as many as make 32 MiB, but not more than 10,000.
	PageSize int64

	// IdleTimeout bounds how long etcd may be silent: the answer to a request, and
	// the stream of a watch, which asks for a sign of life three times within it. 0
	// means DefaultIdleTimeout.
	IdleTimeout time.Duration
}

const (
	// DefaultIdleTimeout is several elections long: a cluster that has lost its leader
	// says so itself.
	DefaultIdleTimeout = 30 * time.Second

	// defaultMaxMessage bounds one message of etcd, in bytes.
	defaultMaxMessage = 64 << 20
)

// Source reads one resource. List, StreamList, Seed and Watch are for one
// reflector at a time; Newest may be called by anybody at any time.
type Source struct {
	conn        *grpc.ClientConn
	kv          pb.KVClient
	watcher     pb.WatchClient
	prefix      prefix
	accept      func(keepwatch.Key) bool
	decoder     func(*Object, []byte) (keepwatch.Object, error)
	pageSize    int64 // zero for pages by their bytes
	idleTimeout time.Duration
	maxMessage  int
	fragments   atomic.Bool // streams ask for them
	newest      quorumReads
	failedLimit atomic.Int64 // keys of the last page if it failed, else 0
	lastWrite   *LastWrite

	mu       sync.Mutex
	cluster  uint64              // the cluster that is being followed, 0 before the first answer
	replaced uint64              // as past counted when the last list began
	open     map[*watch]struct{} // that have not been closed
}

// New makes a source. It sends nothing yet. The client stays the caller's, and may
// be shared by many sources: TLS, users, endpoints and keepalive are as it was
// made. It must have a connection of its own.
func New(client *clientv3.Client, opts Options) (*Source, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	conn := client.ActiveConnection()
	if conn == nil {
		return nil, errors.New("the etcd client has no connection: make it with clientv3.New")
	}
	s := &Source{
		conn:        conn,
		kv:          pb.NewKVClient(conn),
		watcher:     pb.NewWatchClient(conn),
		prefix:      prefix(opts.Prefix),
		accept:      opts.Accept,
		decoder:     opts.Decode,
		pageSize:    opts.PageSize,
		idleTimeout: opts.IdleTimeout,
		maxMessage:  defaultMaxMessage,
		newest:      newQuorumReads(),
		lastWrite:   opts.LastWrite,
		open:        map[*watch]struct{}{},
	}
	if s.lastWrite == nil {
		s.lastWrite = &LastWrite{}
	}
	if s.accept == nil {
		s.accept = func(keepwatch.Key) bool { return true }
	}
	if s.idleTimeout == 0 {
		s.idleTimeout = DefaultIdleTimeout
	}
	return s, nil
}

func (o Options) validate() error {
	switch {
	case !strings.HasSuffix(o.Prefix, "/"):
		return fmt.Errorf("the prefix of storage keys must end in \"/\": %q", o.Prefix)
	case o.PageSize < 0:
		return fmt.Errorf("the page size must not be negative: %d", o.PageSize)
	case o.IdleTimeout < 0:
		return fmt.Errorf("the idle timeout must not be negative: %v", o.IdleTimeout)
	}
	return nil
}

// StreamList always fails: etcd has no such thing.
func (s *Source) StreamList(context.Context, keepwatch.Revision, func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	return 0, nil, keepwatch.Failed(keepwatch.StreamingListUnsupported, "list %s: etcd lists in pages only", s.prefix)
}

// read is one linearizable range read: no member answers before it has what the
// cluster had committed when it was asked.
func (s *Source) read(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.idleTimeout)
	defer cancel()
	return s.kv.Range(ctx, r, grpc.MaxCallRecvMsgSize(s.maxMessage), grpc.ForceCodecV2(wireCodec))
}

// touch is a linearizable read of as little as can be: of the prefix itself, which
// is no object's key.
func (s *Source) readHeader(ctx context.Context, at keepwatch.Revision) (*pb.ResponseHeader, error) {
	answer, err := s.read(ctx, &pb.RangeRequest{Key: []byte(s.prefix), Revision: int64(at), CountOnly: true})
	return answer.GetHeader(), err
}

// same checks that an answer comes from the cluster that is being followed. adopt
// makes another cluster the one from now on: for whoever tells the reflector.
func (s *Source) checkCluster(op string, h *pb.ResponseHeader, adopt bool) *keepwatch.Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := h.GetClusterId()
	followed := s.cluster
	if followed == 0 || adopt {
		s.cluster = id
	}
	if followed == 0 || followed == id {
		return nil
	}
	return keepwatch.Failed(keepwatch.Rewound, "%s %s: cluster %x answers in the place of %x", op, s.prefix, id, followed)
}
