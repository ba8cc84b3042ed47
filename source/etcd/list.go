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

// List reads one page. It is always a consistent read: the first page shows the
// newest committed revision, those after it the same one. A newest revision below
// NotOlderThan, or below that of the page before, is Rewound; a page whose revision
// was compacted meanwhile is Expired.
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
			"list %s: the newest revision is %d, but it was %d already", s.prefix, page.Revision, req.NotOlderThan))
	}
	return page, nil
}

// page reads what follows a position, and moves it to where the next page begins.
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
	// firstPage is how many keys are asked for while nobody knows how large they are.
	firstPage = 500
	// pageBytes is what the pages behind it are to have, of values. etcd counts all
	// keys that are left for each page, so that many small ones cost it a multiple: of
	// 50,000 pods it took 4.2 s of CPU by the hundred, 1.6 s by 500 and 0.9 s by 2,000.
	pageBytes = 32 << 20
	// maxPage bounds a page of small objects, as kube-apiserver does.
	maxPage = 10_000
	// pageShare is the part of the idle timeout in which a page is to come: the link may
	// be slow.
	pageTimeShare = 10
	// pageGrowth bounds how much larger a page is asked for than the one before.
	pageGrowth = 4
)

// limitAfter is how many keys the page behind one is to have.
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

// limitAgain returns how many keys a page is to have behind one that failed: fewer, if that
// one had many. It may have been what etcd, or the connection, could not bear.
func (s *Source) limitAfterFailure(limit int64) int64 {
	if failed := s.failedLimit.Load(); failed > 0 && s.pageSize == 0 {
		return min(limit, max(1, failed/pageGrowth))
	}
	return limit
}

// sizes are the length of a message that gRPC refuses, and what it would take.
var messageSizes = regexp.MustCompile(`\((\d+) vs\. \d+\)`)

// fitting returns how many keys are asked for in the place of limit, whose page was too
// large: about as many as make a page, by the size that the refusal tells.
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

// decodeShare is how many objects are worth a goroutine.
const decodeBatch = 32

// decodeAll decodes the accepted keys of a page on all processors: that is most of what a
// list costs.
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

// beginning is where a list begins.
func (s *Source) firstPosition() position {
	if s.pageSize != 0 {
		return position{limit: s.pageSize}
	}
	return position{limit: firstPage}
}

func (s *Source) rangeFrom(ctx context.Context, at position) (*pb.RangeResponse, error) {
	from := s.prefix.first()
	if at.after != (keepwatch.Key{}) {
		from = append([]byte(s.prefix.storageKey(at.after)), 0)
	}
	return s.read(ctx, &pb.RangeRequest{Key: from, RangeEnd: s.prefix.end(), Revision: int64(at.revision), Limit: at.limit})
}

// position is where in a list a page begins; as text it is a continue token.
type position struct {
	revision keepwatch.Revision // zero for the newest
	limit    int64
	after    keepwatch.Key // the last key of the page before, empty on the first
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
