package etcd

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/keepwatch/keepwatch"
)

// List reads one page. It is always a consistent read: the first page shows the newest
// committed revision, and the following pages show the same one. List fails with Rewound
// if the newest revision is below NotOlderThan or below that of the previous page, and
// with Expired if the revision of the list was compacted.
func (s *Source) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	at := s.firstPosition()
	if req.Continue == "" {
		s.recordListStart()
	} else {
		var err error
		if at, err = parsePosition(req.Continue); err != nil {
			return keepwatch.Page{}, keepwatch.Failed(keepwatch.Rejected, "list %s: %w", s.prefix, err)
		}
	}
	page, failure := s.page(ctx, &at)
	switch {
	case failure != nil:
		return keepwatch.Page{}, failure
	case page.Revision < req.NotOlderThan && req.Continue == "":
		return keepwatch.Page{}, s.reportRewind(keepwatch.Failed(keepwatch.Rewound,
			"list %s: the newest revision is %d, below %d, which was seen before", s.prefix, page.Revision, req.NotOlderThan))
	}
	return page, nil
}

// page reads the page at a position, and advances the position to the next page.
func (s *Source) page(ctx context.Context, at *position) (keepwatch.Page, *keepwatch.Failure) {
	at.limit = s.limitAfterFailure(at.limit)
	began := time.Now()
	answer, err := s.rangeFrom(ctx, *at)
	for isTooLarge(err) && at.limit > 1 {
		at.limit = smallerLimit(at.limit, err)
		began = time.Now()
		answer, err = s.rangeFrom(ctx, *at)
	}
	if err != nil {
		s.failedLimit.Store(at.limit)
		return keepwatch.Page{}, s.failure(ctx, "list", err)
	}
	s.failedLimit.Store(0)
	if failure := s.checkCluster("list", answer.Header, true); failure != nil {
		return keepwatch.Page{}, failure
	}
	if at.revision == 0 {
		at.revision = keepwatch.Revision(answer.Header.Revision)
	}
	page := keepwatch.Page{Revision: at.revision}
	var failure *keepwatch.Failure
	if page.Objects, failure = s.decodeAll(answer.Kvs); failure != nil {
		return keepwatch.Page{}, failure
	}
	if n := len(answer.Kvs); answer.More && n > 0 {
		at.after = s.prefix.key(answer.Kvs[n-1].Key)
		at.limit = s.limitAfter(at.limit, answer.Kvs, time.Since(began))
		page.Continue = at.String()
		page.Remaining = max(0, answer.Count-int64(len(answer.Kvs)))
	}
	return page, nil
}

const (
	// firstPage is the limit of the first page, when the size of the values is unknown.
	firstPage = 500
	// pageBytes is the desired size of the values in each following page. etcd counts all
	// remaining keys for each page, so that many small pages cost it a multiple: 50,000
	// pods took 4.2 s of CPU in pages of 100, 1.6 s of 500 and 0.9 s of 2,000.
	pageBytes = 32 << 20
	// maxPage bounds a page of small objects, as kube-apiserver does.
	maxPage = 10_000
	// pageTimeShare is the part of the idle timeout that a page should take, as divisor:
	// the connection may be slow.
	pageTimeShare = 10
	// pageGrowth bounds the ratio of a page's limit to that of the previous page.
	pageGrowth = 4
)

// limitAfter returns the limit of the page that follows page.
func (s *Source) limitAfter(limit int64, page []*mvccpb.KeyValue, took time.Duration) int64 {
	if s.pageSize != 0 {
		return limit
	}
	bytes := 1
	for _, kv := range page {
		bytes += len(kv.Value)
	}
	n := float64(len(page))
	fits := int64(min(n*pageBytes/float64(bytes), n*float64(s.idleTimeout/pageTimeShare)/float64(took+1)))
	return max(1, min(fits, limit*pageGrowth, maxPage))
}

// limitAfterFailure returns the limit of a page after one that failed: lower, if that one's
// was high. Its size may have been the reason why etcd or the connection failed.
func (s *Source) limitAfterFailure(limit int64) int64 {
	if failed := s.failedLimit.Load(); failed > 0 && s.pageSize == 0 {
		return min(limit, max(1, failed/pageGrowth))
	}
	return limit
}

// messageSizes matches the size of a message that gRPC refuses, and the maximum.
var messageSizes = regexp.MustCompile(`\((\d+) vs\. \d+\)`)

// smallerLimit returns the limit that replaces one whose page was too large. It uses the
// size in the error's text to choose about pageBytes.
func smallerLimit(limit int64, refusal error) int64 {
	_, message := codeAndMessage(refusal)
	fewer := min(limit/2, firstPage)
	if match := messageSizes.FindStringSubmatch(message); match != nil {
		if size, err := strconv.ParseFloat(match[1], 64); err == nil && size > pageBytes {
			fewer = min(fewer, int64(float64(limit)*pageBytes/size))
		}
	}
	return max(1, fewer)
}

// decodeBatch is the least number of objects for which a goroutine is started.
const decodeBatch = 32

// decodeAll decodes the accepted keys of a page on all processors: decoding is most of
// the cost of a list.
func (s *Source) decodeAll(kvs []*mvccpb.KeyValue) ([]keepwatch.Object, *keepwatch.Failure) {
	objects := make([]keepwatch.Object, len(kvs))
	workers := min(runtime.GOMAXPROCS(0), max(1, len(kvs)/decodeBatch))
	failures := make([]*keepwatch.Failure, workers)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := w * len(kvs) / workers; i < (w+1)*len(kvs)/workers && failures[w] == nil; i++ {
				objects[i], failures[w] = s.decode(kvs[i])
			}
		})
	}
	group.Wait()
	for _, failure := range failures {
		if failure != nil {
			return nil, failure
		}
	}
	return slices.DeleteFunc(objects, func(o keepwatch.Object) bool { return o == nil }), nil
}

// firstPosition returns the position of a list's first page.
func (s *Source) firstPosition() position {
	if s.pageSize != 0 {
		return position{limit: s.pageSize}
	}
	return position{limit: firstPage}
}

func (s *Source) rangeFrom(ctx context.Context, at position) (*pb.RangeResponse, error) {
	r := s.rangeRequest(at)
	r.Limit = at.limit
	return s.read(ctx, r)
}

// rangeRequest returns the request for all keys from a position on.
func (s *Source) rangeRequest(at position) *pb.RangeRequest {
	from := s.prefix.first()
	if at.after != (keepwatch.Key{}) {
		from = append([]byte(s.prefix.storageKey(at.after)), 0)
	}
	return &pb.RangeRequest{Key: from, RangeEnd: s.prefix.end(), Revision: int64(at.revision)}
}

// position is the start of a page within a list. Its text is a continue token.
type position struct {
	revision keepwatch.Revision // zero: the newest
	limit    int64
	after    keepwatch.Key // the last key of the previous page; empty for the first page
}

func (p position) String() string {
	return fmt.Sprintf("%d %d %s", p.revision, p.limit, p.after)
}

// parsePosition reads a continue token.
func parsePosition(token string) (position, error) {
	wrong := fmt.Errorf("the continue token %q is not one of this source", token)
	first, rest, _ := strings.Cut(token, " ")
	second, after, _ := strings.Cut(rest, " ")
	revision, err := keepwatch.ParseRevision(first)
	if err != nil || int64(revision) < 0 {
		return position{}, wrong
	}
	limit, err := strconv.ParseInt(second, 10, 64)
	if err != nil || limit < 1 || after == "" {
		return position{}, wrong
	}
	return position{revision: revision, limit: limit, after: prefix("").key([]byte(after))}, nil
}
