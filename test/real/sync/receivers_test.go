package sync

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// lines are the contents of a receiver of lines.
type lines struct{ *sinktest.Fold }

// received returns the states of all lines, after the lines were judged.
func (l lines) received(t *testing.T) *received {
	problems, err := l.Invariants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	t.Logf("%d lines, %d repeated", l.Lines, l.Repeated)
	return &received{l.States(), l.Gaps()}
}

// followFiles writes files, which are read as the manifest says.
func followFiles(t *testing.T) *follower {
	dir := filepath.Join(t.TempDir(), "changes")
	fold := &sinktest.Fold{CurrentTexts: true}
	r := &filesReader{dir: dir}
	fold.Read = func() error {
		text, err := r.next()
		if err == nil {
			fold.AddAll(text)
		}
		return err
	}
	return &follower{contents: lines{fold}, to: "files:" + dir, flags: []string{"--rotate-size", "2Mi", "--compress",
		"gzip"}}
}

// filesReader reads the lines of a directory once, as a consumer does.
type filesReader struct {
	dir  string
	name string // of the newest file that was read, without .gz
	read int64  // bytes of it
}

// next returns the lines since the last call.
func (r *filesReader) next() (text []byte, err error) {
	var m struct {
		Files []struct {
			Name  string
			Bytes int64
		}
	}
	manifest, err := os.ReadFile(filepath.Join(r.dir, "manifest.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err = errors.Join(err, json.Unmarshal(manifest, &m)); err != nil {
		return nil, err
	}
	after := *r
	for _, f := range m.Files {
		name := strings.TrimSuffix(f.Name, ".gz")
		if name < after.name {
			continue
		}
		if name > after.name {
			after.name, after.read = name, 0
		}
		part, err := readFile(filepath.Join(r.dir, f.Name), f.Bytes, after.read)
		if errors.Is(err, fs.ErrNotExist) {
			return r.next() // it was compressed meanwhile
		}
		if err != nil {
			return nil, err
		}
		text, after.read = append(text, part...), after.read+int64(len(part))
	}
	*r = after
	return text, nil
}

// readFile returns the text of the first bytes of a file, from an offset in the text on.
func readFile(path string, size, offset int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := io.LimitReader(f, size)
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(in); err != nil {
			return nil, err
		}
	}
	if _, err := io.CopyN(io.Discard, in, offset); err != nil {
		return nil, err
	}
	return io.ReadAll(bufio.NewReader(in))
}

// receiver is an HTTP server that fails often, before and after it has received events.
type receiver struct {
	lines
	t        *testing.T
	address  string
	server   *http.Server
	requests atomic.Int64
}

// followHTTP sends to an HTTP server, which is killed, too.
func followHTTP(t *testing.T) *follower {
	r := &receiver{lines: lines{&sinktest.Fold{CurrentTexts: true}}, t: t, address: "127.0.0.1:0"}
	r.start()
	t.Cleanup(func() { r.server.Close() })
	return &follower{
		contents: r, to: "http://" + r.address + "/in", flags: []string{"--state", filepath.Join(t.TempDir(), "state"),
			"--mode", "batched"},
		killSink: func(random *rand.Rand) {
			r.server.Close()
			time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
			r.start()
		},
	}
}

// start listens where it listened before.
func (r *receiver) start() {
	var listener net.Listener
	await.NoError(r.t, "the receiver listens", func() (err error) { // another process may have the port
		listener, err = net.Listen("tcp", r.address)
		return err
	})
	r.address = listener.Addr().String()
	r.server = &http.Server{Handler: r, ErrorLog: log.New(io.Discard, "", 0)}
	go func(s *http.Server) { _ = s.Serve(listener) }(r.server) // ends with Close
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	fate := r.requests.Add(1) % 200
	switch fate {
	case 5:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case 15:
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the sender was killed
	}
	var events []struct{ Data json.RawMessage }
	if err := json.Unmarshal(body, &events); err != nil {
		r.t.Errorf("%s: %v", body, err)
	}
	if len(events) > 50 {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	for _, e := range events {
		r.Add(bytes.Clone(e.Data))
	}
	if fate == 25 {
		panic(http.ErrAbortHandler) // closes the connection
	}
}
