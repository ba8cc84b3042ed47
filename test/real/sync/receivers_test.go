package sync

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// TestFiles runs the storm with files, which are read as the manifest says.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "changes")
	read := 0 // lines
	fold := &sinktest.Fold{}
	fold.Read = func() error {
		text, err := readFiles(dir)
		if err != nil {
			return err
		}
		lines := slices.Collect(bytes.Lines(text))
		for _, line := range lines[read:] {
			fold.Add(line)
		}
		read = len(lines)
		return nil
	}
	r := &runner{received: folded(fold), flags: []string{"--rotate-size", "200Ki", "--compress", "gzip"}}
	r.run(t, "files:"+dir, nil)
}

// readFiles returns the lines of the files in a directory, as its manifest has them.
func readFiles(dir string) (text []byte, err error) {
	var m struct {
		Files []struct {
			Name  string
			Bytes int64
		}
	}
	manifest, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err = errors.Join(err, json.Unmarshal(manifest, &m)); err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		part, err := readFile(filepath.Join(dir, f.Name), f.Bytes)
		if errors.Is(err, fs.ErrNotExist) {
			return readFiles(dir) // it was compressed meanwhile
		}
		if err != nil {
			return nil, err
		}
		text = append(text, part...)
	}
	return text, nil
}

func readFile(path string, size int64) ([]byte, error) {
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
	return io.ReadAll(in)
}

// TestHTTP runs the storm with an HTTP server that fails often, before and after it has received events.
func TestHTTP(t *testing.T) {
	fold := &sinktest.Fold{}
	var mu sync.Mutex
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		mu.Lock()
		n++
		fate := n % 40
		mu.Unlock()
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
			t.Errorf("%s: %v", body, err)
		}
		if len(events) > 50 {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		for _, e := range events {
			fold.Add(e.Data)
		}
		if fate == 25 {
			panic(http.ErrAbortHandler) // closes the connection
		}
	}))
	t.Cleanup(s.Close)
	r := &runner{received: folded(fold), flags: []string{"--state", filepath.Join(t.TempDir(), "state"), "--mode", "batched"}}
	r.run(t, s.URL, nil)
	t.Logf("%d requests", n)
}

// folded is what a receiver has received.
func folded(f *sinktest.Fold) *received {
	return &received{f.Current, func(r *runner) { r.judgeFold(f) }}
}

// judgeFold compares everything that was received with the writes, as judge does.
func (r *runner) judgeFold(fold *sinktest.Fold) {
	t := r.t
	problems, err := fold.Invariants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	r.judgeObjects(fold.Objects, fold.Gaps)
	t.Logf("%d lines, %d repeated", fold.Lines, fold.Repeated)
}

// judgeObjects compares the objects of each type that were received, by UID and whether each was deleted, with the writes:
// every deletion was received, and only an object that was created and deleted within a gap may be missing.
func (r *runner) judgeObjects(objects func(resource string) (deleted map[string]bool), gapsOf func(resource string) []stream.Gap) {
	t := r.t
	missed, total, gaps := 0, 0, 0
	for i, k := range kinds {
		resource := k.resource.GroupResource().String()
		received := objects(resource)
		missing := gapsOf(resource)
		gaps += len(missing)
		for _, o := range r.churns[i].Records() {
			total++
			created, err := strconv.ParseUint(o.Created, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			switch gone, ok := received[string(o.UID)]; {
			case ok && gone != o.Deleted:
				t.Errorf("%s %s (%s): deleted is %v, and a deletion was received: %v", resource, o.Name, o.UID, o.Deleted, gone)
			case !ok && !slices.ContainsFunc(missing, func(g stream.Gap) bool {
				return g.From < keepwatch.Revision(created) && keepwatch.Revision(created) <= g.To
			}):
				t.Errorf("%s %s (%s), created at %d outside of any gap, is missing", resource, o.Name, o.UID, created)
			case !ok:
				missed++
			}
		}
	}
	t.Logf("%d of %d objects were created and deleted within a gap; %d gaps", missed, total, gaps)
	if gaps == 0 {
		t.Error("no gap is due to the downtime")
	}
}
