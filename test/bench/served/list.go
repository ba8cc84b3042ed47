package served

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/keepwatch/keepwatch/test/bench/wire"
)

// listing is a way to get pods.
type listMode struct {
	Row    string
	path   string
	accept string
	gzip   bool
	rows   bool // a table, as kubectl requests it
	stream bool // a watch that begins with all there is
	// counted is a text that each object has once; without one, the objects are pods of the fleet.
	counted string
}

const (
	allPods = "/api/v1/pods"
	initial = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	// pageSize is kubectl's.
	pageSize = 500
)

// All listings that are measured.
var (
	listJSON      = listMode{Row: "LIST JSON", path: allPods, accept: asJSON}
	listGzip      = listMode{Row: "LIST JSON gzip", path: allPods, accept: asJSON, gzip: true}
	listProtobuf  = listMode{Row: "LIST protobuf", path: allPods, accept: asProtobuf}
	listTable     = listMode{Row: "LIST Table", path: allPods, accept: asTable, rows: true}
	listTableGzip = listMode{Row: "LIST Table gzip", path: allPods, accept: asTable, rows: true, gzip: true}
	listNamespace = listMode{Row: "LIST JSON, one namespace", path: "/api/v1/namespaces/team-000/pods", accept: asJSON}
	listPages     = listMode{Row: "LIST JSON, pages of 500", path: fmt.Sprintf("%s?limit=%d", allPods, pageSize),
		accept: asJSON}
	watchListJSON     = listMode{Row: "WatchList JSON", path: allPods + initial, accept: asJSON + asWatch, stream: true}
	watchListProtobuf = listMode{Row: "WatchList protobuf", path: allPods + initial, accept: asProtobuf + asWatch,
		stream: true}
)

func (l listMode) request(data func([]byte)) wire.Request {
	return wire.Request{Path: l.path, Accept: l.accept, Gzip: l.gzip, Data: data}
}

// body is the size of a list.
const body = "body"

// mark returns a text to count, and how often the encoding of each pod has it.
func (l listMode) mark() (text string, perPod int) {
	switch {
	case l.counted != "":
		return l.counted, 1
	case l.rows:
		return `"cells":[`, 1
	}
	return "containerd://", 2 // one for each container
}

// verify reads the list once, counts its pods, and returns the length of its body.
func (l listMode) verify(ctx context.Context, conn *link, pods int) (length int64, err error) {
	mark, perPod := l.mark()
	marks, found := wire.NewMarks(mark), 0
	r, w := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := l.unpack(r, func(p []byte) { found += marks.Count(p) })
		r.CloseWithError(err)
		unpacked <- err
	}()
	answer, err := conn.fetch(ctx, l.request(func(p []byte) {
		length += int64(len(p))
		_, _ = w.Write(p) // its error is unpack's
	}))
	w.CloseWithError(err) // nil is the end
	failed := <-unpacked
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, failed
	case found != perPod*pods:
		return 0, fmt.Errorf("%s has %d pods of %d", l.Row, found/perPod, pods)
	case answer.Compressed() != l.gzip:
		return 0, fmt.Errorf("%s: compressed: %v", l.Row, answer.Compressed())
	}
	return length, nil
}

func (l listMode) unpack(r io.Reader, take func([]byte)) error {
	if l.gzip {
		unzip, err := gzip.NewReader(r)
		if err != nil {
			return err
		}
		r = unzip
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := r.Read(buffer)
		take(buffer[:n])
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// read reads the list and discards it. Its length must be about that of the verified list:
// revisions and compression differ.
func (l listMode) read(ctx context.Context, conn *link, want int64) error {
	var length int64
	_, err := conn.fetch(ctx, l.request(func(p []byte) { length += int64(len(p)) }))
	if err == nil && length < want-want/50 {
		err = l.tooShort(length, want)
	}
	return err
}

func (l listMode) tooShort(length, want int64) error {
	return fmt.Errorf("%s has %d bytes of %d", l.Row, length, want)
}

// measureList measures one of the plain lists.
func (s *subject) measureList(ctx context.Context, r *Report, l listMode, pods int) error {
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.close()
	length, err := l.verify(ctx, conn, pods)
	if err != nil {
		return err
	}
	u, err := s.repeat(func() error { return l.read(ctx, conn, length) })
	if err != nil {
		return err
	}
	r.Add(s.by, l.Row, append(u.figures(), size(body, length))...)
	return nil
}

var continueField = regexp.MustCompile(`"continue":"([^"]*)"`)

// measurePages measures a list in pages.
func (s *subject) measurePages(ctx context.Context, r *Report, pods int) error {
	u, err := s.readPages(ctx, listPages, pods)
	if err == nil {
		r.Add(s.by, listPages.Row, u.figures()...)
	}
	return err
}

// readPages reads a list of n objects in pages, of which each names the next.
func (s *subject) readPages(ctx context.Context, l listMode, n int) (usage, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return usage{}, err
	}
	defer conn.close()
	return s.repeat(func() error {
		pages, next := 0, ""
		for page := l; pages == 0 || next != ""; pages++ {
			if next != "" {
				page.path = l.path + "&continue=" + next
			}
			if next, err = page.readPage(ctx, conn); err != nil {
				return err
			}
		}
		// A server may have some objects of its own.
		if want := (n + pageSize - 1) / pageSize; pages < want || pages > want+1 {
			return fmt.Errorf("%s: %d pages, want %d", l.Row, pages, want)
		}
		return nil
	})
}

// readPage returns the token of the next page. It is in the list's metadata, before the
// items.
func (l listMode) readPage(ctx context.Context, conn *link) (next string, err error) {
	var head bytes.Buffer
	_, err = conn.fetch(ctx, l.request(func(p []byte) { head.Write(p[:min(len(p), max(0, 4<<10-head.Len()))]) }))
	if token := continueField.FindSubmatch(head.Bytes()); token != nil {
		next = string(token[1])
	}
	return next, err
}

// measureWatchList measures a watch up to the bookmark that ends its initial events.
func (s *subject) measureWatchList(ctx context.Context, r *Report, l listMode, pods int) error {
	u, err := s.repeat(func() error {
		conn, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer conn.close()
		end, ended, events := wire.NewMarks("k8s.io/initial-events-end"), make(chan struct{}), 0
		counter := counterOf(l.accept)
		answer, err := conn.Get(l.request(func(p []byte) {
			events += counter.Count(p)
			if end.Count(p) > 0 {
				close(ended)
			}
		}))
		if err != nil {
			return err
		}
		select {
		case <-ended:
		case <-answer.Done():
			return fmt.Errorf("%s ends after %d events: %v", l.Row, events, answer.Wait(ctx))
		case <-ctx.Done():
			return ctx.Err()
		}
		conn.close()
		if events < pods {
			return fmt.Errorf("%s has %d pods of %d", l.Row, events, pods)
		}
		return nil
	})
	if err == nil {
		r.Add(s.by, l.Row, u.figures()...)
	}
	return err
}

func counterOf(accept string) wire.Counter {
	if strings.HasPrefix(accept, asProtobuf) {
		return &wire.Blocks{}
	}
	return wire.Lines{}
}
