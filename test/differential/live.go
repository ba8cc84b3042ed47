package differential

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// watches is how many are open while the world changes.
const watches = 100

// pair is one watch, open at both servers.
type pair struct {
	request      Request
	theirs, ours *stream
}

// live changes the world while watches are open at both servers, and compares their
// events.
func (w *World) live(ctx context.Context, g *Generator, report *Report) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	pairs, err := w.watch(watching, g.liveWatches(), &reading)
	if err != nil {
		return err
	}
	state := w.state()
	if err := w.Change(ctx, changes); err != nil {
		return err
	}
	if err := w.Settle(ctx); err != nil {
		return err
	}
	// If they never become equal, the comparison reports it.
	_ = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, await.Deadline, true, func(context.Context) (bool, error) {
		for _, p := range pairs {
			if theirs, ours := p.theirs.answer(), p.ours.answer(); theirs.Incomplete == "" && ours.Incomplete == "" &&
				theirs.countEvents() != ours.countEvents() {
				return false, nil
			}
		}
		return true, nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, p := range pairs {
		report.Add(Exchange{Request: p.request, Theirs: p.theirs.answer(), Ours: p.ours.answer(), World: state})
	}
	return nil
}

// liveWatches draws watches that stay open.
func (g *Generator) liveWatches() []Request {
	all := make([]Request, watches)
	for i := range all {
		r := g.request()
		for !r.Stream || r.revision() > g.world.revision {
			r = g.request()
		}
		r.Encoding = "" // a compressed answer could end within a block
		r.Options.Set("timeoutSeconds", "600")
		all[i] = r
	}
	return all
}

// watch opens watches until ctx ends. If there was a write in the meantime, which API servers make by themselves now
// and then, it opens them again: the initial events of a watch may be those of any revision since the one that the
// request names, and both servers need not have the same one then. Those that are refused are left to the other
// requests.
func (w *World) watch(ctx context.Context, requests []Request, reading *sync.WaitGroup) ([]*pair, error) {
	for {
		if err := w.Settle(ctx); err != nil {
			return nil, err
		}
		pairs, err := w.openPairs(ctx, requests, reading)
		if err != nil {
			return nil, err
		}
		waitForInitialEvents(ctx, pairs)
		if now, err := w.now(ctx); err != nil || now == w.revision {
			return pairs, err
		}
	}
}

// waitForInitialEvents waits until both servers have sent the bookmark that ends the initial events of each watch which
// asks for it: its revision is the newest one of that moment. If a server never sends it, the comparison reports that.
func waitForInitialEvents(ctx context.Context, pairs []*pair) {
	_ = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, await.Deadline, true, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(pairs, func(p *pair) bool {
			return p.request.Options.Get("sendInitialEvents") == "true" &&
				p.request.Options.Get("allowWatchBookmarks") == "true" &&
				!(p.theirs.hasInitialEvents() && p.ours.hasInitialEvents())
		}), nil
	})
}

// openPairs opens watches at both servers until ctx ends.
func (w *World) openPairs(ctx context.Context, requests []Request, reading *sync.WaitGroup) ([]*pair, error) {
	group := errgroup.Group{}
	group.SetLimit(concurrency)
	all := make([]*pair, len(requests))
	for i, r := range requests {
		all[i] = &pair{request: r}
		group.Go(func() (err error) {
			if all[i].theirs, err = w.theirs.stream(ctx, r, reading); err == nil {
				all[i].ours, err = w.ours.stream(ctx, r, reading)
			}
			return err
		})
	}
	err := group.Wait()
	var open []*pair
	for _, p := range all {
		if p.theirs != nil && p.ours != nil && p.theirs.status == http.StatusOK && p.ours.status == http.StatusOK {
			open = append(open, p)
		}
	}
	return open, err
}

// stream is an answer that has not ended.
type stream struct {
	status int
	header http.Header

	mu   sync.Mutex
	body []byte
	end  error
}

// stream sends a request and reads the answer until ctx ends.
func (s *Side) stream(ctx context.Context, r Request, reading *sync.WaitGroup) (*stream, error) {
	response, err := s.open(ctx, r)
	if err != nil {
		return nil, err
	}
	t := &stream{status: response.StatusCode, header: response.Header}
	reading.Go(func() {
		defer response.Body.Close()
		t.read(response.Body)
	})
	return t, nil
}

func (t *stream) read(body io.Reader) {
	part := make([]byte, 32<<10)
	for {
		n, err := body.Read(part)
		t.mu.Lock()
		t.body = append(t.body, part[:n]...)
		if len(t.body) > maxBody && err == nil {
			err = errors.New("too long")
		}
		t.end = err
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// hasInitialEvents reports whether the answer has the annotation of the bookmark that ends the initial events, which is
// plain text in every encoding, or has ended.
func (t *stream) hasInitialEvents() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.end != nil || bytes.Contains(t.body, []byte(metav1.InitialEventsAnnotationKey))
}

// answer returns the answer so far.
func (t *stream) answer() Answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := Answer{Status: t.status, Header: t.header, Body: t.body, Streamed: true}
	a.Events, _ = events(mediaType(t.header), t.body) // the last may be on its way
	if t.end != nil {
		a.Incomplete = "it ended before its client did: " + t.end.Error()
	}
	return a
}
