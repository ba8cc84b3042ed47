package stream_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/stream"
)

// TestKilledBetweenARewindAndItsList kills a process that has noticed that its source was
// restored from a backup, before it receives a list. When the next process starts, the
// source is below, at or above the revision of the first one.
func TestKilledBetweenARewindAndItsList(t *testing.T) {
	for name, row := range map[string]struct {
		restored keepwatch.Page // of the next process
		want     []string
	}{
		"overtaken": {
			keepwatch.Page{Revision: 12, Objects: []keepwatch.Object{note{"b", 11}, note{"c", 12}}},
			[]string{
				`{"type":"GAP","from":"9","to":"12","reason":"rewind"}`,
				`{"type":"MODIFIED","revision":"11","id":"uid-b/11","resource":"notes","object":{"metadata":{"name":"b"},"text":"as of 11"}}`,
				`{"type":"ADDED","revision":"12","id":"uid-c/12","resource":"notes","object":{"metadata":{"name":"c"},"text":"as of 12"}}`,
				`{"type":"DELETED","revision":"12","id":"uid-a/4/deleted","resource":"notes","object":{"metadata":{"name":"a"}}}`,
				`{"type":"SYNCED","revision":"12","count":2}`,
			},
		},
		"met": {
			keepwatch.Page{Revision: 9, Objects: []keepwatch.Object{note{"a", 4}, note{"c", 9}}},
			[]string{
				`{"type":"GAP","from":"9","to":"9","reason":"rewind"}`,
				`{"type":"ADDED","revision":"9","id":"uid-c/9","resource":"notes","object":{"metadata":{"name":"c"},"text":"as of 9"}}`,
				`{"type":"DELETED","revision":"9","id":"uid-b/9/deleted","resource":"notes","object":{"metadata":{"name":"b"}}}`,
				`{"type":"SYNCED","revision":"9","count":2}`,
			},
		},
		"still behind": {
			keepwatch.Page{Revision: 5, Objects: []keepwatch.Object{note{"a", 4}}},
			[]string{
				`{"type":"GAP","from":"9","to":"5","reason":"rewind"}`,
				`{"type":"DELETED","revision":"5","id":"uid-b/9/deleted","resource":"notes","object":{"metadata":{"name":"b"}}}`,
				`{"type":"SYNCED","revision":"5","count":1}`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, killed := t.TempDir(), t.TempDir()
			follow(t, dir, &restored{newest: 9, page: keepwatch.Page{Revision: 9, Objects: []keepwatch.Object{note{"a", 4},
				note{"b", 9}}}}, "SYNCED")

			// The source is at 7. The reflector requests a list, and receives none.
			ctx, kill := context.WithCancelCause(t.Context())
			lost := errors.New("killed")
			lines := run(t, ctx, dir, &restored{newest: 7, asked: func() {
				duplicate(t, dir, killed)
				kill(lost)
			}}, lost, nil)
			if len(lines) != 0 {
				t.Errorf("delivered %q before there was a list", lines)
			}

			lines = follow(t, killed, &restored{newest: row.restored.Revision, page: row.restored}, "SYNCED")
			if d := cmp.Diff(row.want, lines); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			// The gap has ended: the next process continues without a list.
			lines = follow(t, killed, &restored{newest: row.restored.Revision, asked: func() {
				t.Error("the process requests a list")
			}}, "SYNCED")
			if len(lines) != 1 {
				t.Errorf("delivered %q", lines)
			}
		})
	}
}

// restored is a source with a fixed newest revision and a fixed page.
type restored struct {
	notebook
	newest keepwatch.Revision
	page   keepwatch.Page
	asked  func() // if set, List calls it and then blocks
}

func (r *restored) Newest(context.Context) (keepwatch.Revision, error) { return r.newest, nil }

func (r *restored) List(ctx context.Context, _ keepwatch.ListRequest) (keepwatch.Page, error) {
	if r.asked != nil {
		r.asked()
		<-ctx.Done()
		return keepwatch.Page{}, keepwatch.Failed(keepwatch.Unreachable, "the list: %w", ctx.Err())
	}
	return r.page, nil
}

func (r *restored) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	return &pages{ctx: ctx}, nil
}

// follow runs a process until it has written a line of the type until, and returns the
// lines.
func follow(t *testing.T, dir string, source keepwatch.Source, until string) []string {
	t.Helper()
	deadline, stop := context.WithTimeout(t.Context(), await.Deadline)
	defer stop()
	ctx, cancel := context.WithCancelCause(deadline)
	enough := errors.New("enough")
	return run(t, ctx, dir, source, enough, func(output []byte) {
		if bytes.Contains(output, []byte(`{"type":"`+until+`"`)) {
			cancel(enough)
		}
	})
}

// run runs a process until ctx is done because of want.
func run(t *testing.T, ctx context.Context, dir string, source keepwatch.Source, want error,
	flushed func([]byte)) []string {
	t.Helper()
	state, err := stream.Open(dir, stream.Identity{})
	if err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	target, err := stream.New(stream.NDJSON(&output, "notes"), state, stream.Options{Synced: func() {
		if flushed != nil {
			flushed(output.Bytes())
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := reflector.New(source, target, reflector.Options{}).Run(ctx); err != want {
		t.Fatalf("the run ended with %v, want %v", err, want)
	}
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range bytes.Lines(output.Bytes()) {
		lines = append(lines, string(bytes.TrimSuffix(line, []byte("\n"))))
	}
	return lines
}

// duplicate copies the files of a process as they would be if it were killed now.
func duplicate(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Error(err)
	}
}
