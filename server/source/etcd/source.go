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
	"github.com/keepwatch/keepwatch/server/internal/freshread"
)

var _ keepwatch.Source = (*Source)(nil)

// Options configure a Source. Prefix is required; the other fields may be zero.
type Options struct {
	// Prefix is the common prefix of the resource's storage keys, for example
	// "/registry/pods/". It must end in "/". "namespace/name" follows, or only the name
	// of an object without a namespace.
	Prefix string

	// Accept reports whether a key belongs to the resource. Lists and watches skip other
	// keys, as if etcd did not have them. Accept is called for each key that etcd sends, by
	// several goroutines at a time. Nil accepts every key.
	Accept func(key keepwatch.Key) bool

	// Decode returns the object to be delivered for a value in etcd. It is called once for
	// each write, by several goroutines at a time. The object must have o's key, UID and
	// revision; by embedding o it has them, and Version and Equal. The object may refer to
	// value; o does not. After an error the source delivers an [Undecodable]. If Decode is
	// nil, the source delivers each *[Object].
	Decode func(o *Object, value []byte) (keepwatch.Object, error)

	// LastWrite is shared by sources of the same etcd, so that each detects a replaced
	// history by the writes that the others have seen. Nil: the source has its own.
	LastWrite *LastWrite

	// PageSize bounds the keys of a list's page. Zero means 500 for the first page, then
	// about as many as have 32 MiB, at most 10,000.
	PageSize int64

	// PagesOnly makes Seed read pages although etcd can stream. So does a PageSize.
	PagesOnly bool

	// IdleTimeout bounds the time until etcd answers a request, and the time between two
	// messages of a watch, which requests progress three times within it. Zero means
	// DefaultIdleTimeout.
	IdleTimeout time.Duration
}

const (
	// DefaultIdleTimeout is the longest wait for an answer or a message from etcd: 30 seconds.
	// It is longer than several elections: a cluster without a leader reports that itself.
	DefaultIdleTimeout = 30 * time.Second

	// defaultMaxMessage bounds one message of etcd, in bytes.
	defaultMaxMessage = 64 << 20
)

// Source reads one resource from etcd. List, StreamList, Seed and Watch are for one
// reflector at a time. Newest is safe for concurrent use.
type Source struct {
	conn        *grpc.ClientConn
	kv          pb.KVClient
	watcher     pb.WatchClient
	prefix      prefix
	accept      func(keepwatch.Key) bool
	decoder     func(*Object, []byte) (keepwatch.Object, error)
	pageSize    int64 // zero: chosen by the values' size
	streams     bool  // Seed tries a stream first
	idleTimeout time.Duration
	maxMessage  int
	fragments   atomic.Bool // requested by streams
	newest      *freshread.Reads
	failedLimit atomic.Int64 // limit of the last page if it failed, else 0
	lastWrite   *LastWrite

	mu       sync.Mutex
	cluster  uint64              // its id; 0 before the first answer
	replaced uint64              // as lastWrite counted when the last list began
	open     map[*watch]struct{} // the watches that were not closed
}

// New returns a source that reads through client. New sends no request. The caller owns
// the client and may share it among sources; TLS, users, endpoints and keepalive are the
// client's. New returns an error for invalid options, and for a client without a connection;
// clientv3.New returns one with a connection.
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
		streams:     opts.PageSize == 0 && !opts.PagesOnly,
		idleTimeout: opts.IdleTimeout,
		maxMessage:  defaultMaxMessage,
		newest:      freshread.New(),
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

// StreamList returns StreamingListUnsupported: etcd has no streaming lists.
func (s *Source) StreamList(context.Context, keepwatch.Revision,
	func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	return 0, nil, keepwatch.Failed(keepwatch.StreamingListUnsupported, "list %s: etcd lists in pages only", s.prefix)
}

// read performs one linearizable range read: a member answers only when it has everything
// that the cluster had committed when the request arrived.
func (s *Source) read(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.idleTimeout)
	defer cancel()
	return s.kv.Range(ctx, r, grpc.MaxCallRecvMsgSize(s.maxMessage), grpc.ForceCodecV2(wireCodec))
}

// readHeader performs the smallest linearizable read: of the prefix, which is not an
// object's key.
func (s *Source) readHeader(ctx context.Context, at keepwatch.Revision) (*pb.ResponseHeader, error) {
	answer, err := s.read(ctx, &pb.RangeRequest{Key: []byte(s.prefix), Revision: int64(at), CountOnly: true})
	return answer.GetHeader(), err
}

// checkCluster returns Rewound if an answer comes from another cluster than the earlier
// ones. With adopt, the source continues with that cluster: only callers that report the
// failure to the reflector set it.
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
	return keepwatch.Failed(keepwatch.Rewound, "%s %s: cluster %x answers instead of %x", op, s.prefix, id, followed)
}
