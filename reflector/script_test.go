package reflector_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/store"
)

var update = flag.Bool("update", false, "write the transcripts again")

func TestMain(m *testing.M) { os.Exit(await.Tests(m)) }

// TestScripts runs each testdata/*.txt: the source's answers, call by call, and the transcript
// of the reflector's requests, decisions and deliveries.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, string(archive.Files[0].Data)) })
			if *update {
				archive.Files = append(archive.Files[:1], txtar.File{Name: "transcript", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(archive.Files[1].Data), got); diff != "" {
				t.Errorf("transcript (-want +got):\n%s", diff)
			}
		})
	}
}

// play runs a reflector over a store against a script until the script ends.
func play(t *testing.T, script string) string {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := &player{lines: strings.Split(strings.TrimSpace(script), "\n"), cancel: cancel, start: time.Now()}
	options := reflector.Options{Seed: 1, StartupDeadline: -1, Observe: p.observe}
	for len(p.lines) > 0 {
		set, ok := strings.CutPrefix(p.lines[0], "option ")
		if !ok {
			break
		}
		switch set {
		case "paged":
			options.Paged = true
		case "deadline 0":
			options.StartupDeadline = 0
		default:
			t.Fatalf("unknown option %q", set)
		}
		p.lines = p.lines[1:]
	}
	filled := store.New(store.Options{})
	if words := strings.Fields(p.lines[0]); words[0] == "restored" {
		fill(t, filled, words[1:])
		p.lines = p.lines[1:]
		if words := strings.Fields(p.lines[0]); words[0] == "invalidated" {
			if err := filled.Invalidate(ctx, keepwatch.GapReason(words[1])); err != nil {
				t.Fatal(err)
			}
			p.lines = p.lines[1:]
		}
	}
	p.watcher = filled.Watch(filled.Snapshot().Cursor(), store.Filter{})
	r := reflector.New(p, target{filled, p}, options)
	err := r.Run(ctx)
	p.recordDelivered()
	if ctx.Err() == nil {
		p.record("Run returns: %v", err)
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("Run returns %v", err)
	}
	progress := r.Progress()
	if progress.State != reflector.Stopped {
		t.Errorf("state after Run is %s", progress.State)
	}
	p.record("relists %v, reconnects %v, dropped %d, skipped %d", progress.Relists, progress.Reconnects, progress.Dropped,
		progress.Skipped)
	p.record("at %d; last event %s, last confirmed %s", progress.Revision, p.since(progress.LastEvent),
		p.since(progress.LastConfirmed))
	return p.transcript.String()
}

// fill fills a store as an earlier run has left it.
func fill(t *testing.T, s *store.Store, words []string) {
	list, err := s.Replace(t.Context(), keepwatch.Relist{})
	if err != nil {
		t.Fatal(err)
	}
	last := len(words) - 1
	for _, word := range words[:last] {
		if err := list.Put(t.Context(), []keepwatch.Object{parse(word)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := list.Commit(t.Context(), number(words[last][1:])); err != nil {
		t.Fatal(err)
	}
}

// target is a store that records its confirmations and invalidations.
type target struct {
	*store.Store
	player *player
}

func (t target) Apply(ctx context.Context, b keepwatch.Batch) (int, error) {
	if b.Bookmark() && b.From == b.To {
		t.player.recordDelivered()
		t.player.record("    current at %d", b.To)
	}
	return t.Store.Apply(ctx, b)
}

func (t target) Invalidate(ctx context.Context, reason keepwatch.GapReason) error {
	t.player.record("    invalidate: %s", reason)
	return t.Store.Invalidate(ctx, reason)
}

// player is a source that answers from a script and records the requests.
type player struct {
	lines      []string
	cancel     func()
	start      time.Time
	transcript strings.Builder
	watcher    *store.Watcher
}

func (p *player) record(format string, args ...any) {
	fmt.Fprintf(&p.transcript, "%8s  %s\n", time.Since(p.start).Round(time.Millisecond), fmt.Sprintf(format, args...))
}

// since shows a time in the script's time.
func (p *player) since(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return "at " + at.Sub(p.start).Round(time.Millisecond).String()
}

// recordDelivered records what a consumer of the store has received.
func (p *player) recordDelivered() {
	for {
		d, _, err := p.watcher.TryNext()
		switch d := d.(type) {
		case nil:
			if err != nil {
				p.record("    consumer: %v", err)
			}
			return
		case keepwatch.Batch:
			p.record("    (%d, %d] %s", d.From, d.To, show(d.Changes))
		case keepwatch.Gap:
			p.record("    gap (%d, %d] %s: %s", d.From, d.To, d.Reason, show(d.Changes))
		}
	}
}

func show(changes []keepwatch.Change) string {
	var words []string
	for _, c := range changes {
		sign := map[keepwatch.ChangeType]string{keepwatch.Added: "+", keepwatch.Modified: "~", keepwatch.Deleted: "-"}[c.Type]
		words = append(words, fmt.Sprintf("%s%s@%d", sign, c.Object.Key(), c.Revision))
	}
	return strings.Join(words, " ")
}

func (p *player) observe(n reflector.Notice) {
	if n.Failure == nil {
		return
	}
	p.recordDelivered()
	p.record("  %s: %s after %v, %s", n.Failure, n.Decision, n.Wait.Round(time.Millisecond), n.State)
}

// next returns the script's next line. At its end it ends the run.
func (p *player) next(ctx context.Context) ([]string, *keepwatch.Failure) {
	p.recordDelivered()
	if len(p.lines) == 0 {
		p.cancel()
		<-ctx.Done()
		return nil, keepwatch.Failed(keepwatch.Ended, "the script is over")
	}
	words := strings.Fields(p.lines[0])
	p.lines = p.lines[1:]
	switch words[0] {
	case "fail":
	case "hang":
		<-ctx.Done()
		return nil, keepwatch.Failed(keepwatch.Unreachable, "%w", context.Cause(ctx))
	default:
		return words, nil
	}
	f := &keepwatch.Failure{Err: errors.New(strings.Join(words[1:], " "))}
	name, accepted := strings.CutPrefix(strings.Join(words[1:], " "), "accepted ")
	f.Accepted = accepted
	if head, after, ok := strings.Cut(name, " after "); ok {
		name = head
		f.RetryAfter, _ = time.ParseDuration(after)
	}
	for _, k := range keepwatch.FailureKinds() {
		if k.String() == name {
			f.Kind = k
		}
	}
	if f.Kind == 0 {
		panic("unknown failure " + name)
	}
	return nil, f
}

func (p *player) List(ctx context.Context, r keepwatch.ListRequest) (keepwatch.Page, error) {
	what := "list"
	if r.Whole {
		what = "list whole"
	}
	p.record("%s%s%s", what, floor(r.NotOlderThan), prefixed(" ", r.Continue))
	words, failure := p.next(ctx)
	if failure != nil {
		return keepwatch.Page{}, failure
	}
	page := keepwatch.Page{Revision: number(words[1])}
	for _, w := range words[2:] {
		if token, ok := strings.CutPrefix(w, "continue="); ok {
			page.Continue = token
		} else if name, ok := strings.CutPrefix(w, "!"); ok {
			page.Skipped = append(page.Skipped, keepwatch.Failed(keepwatch.ProtocolViolation, "%s has no revision", name))
		} else {
			page.Objects = append(page.Objects, parse(w))
		}
	}
	return page, nil
}

func (p *player) StreamList(ctx context.Context, at keepwatch.Revision,
	emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	p.record("stream%s", floor(at))
	for {
		words, failure := p.next(ctx)
		if failure != nil {
			return 0, nil, failure
		}
		var objects []keepwatch.Object
		for _, w := range words[1:] {
			if !strings.HasPrefix(w, "=") {
				objects = append(objects, parse(w))
			}
		}
		if err := emit(objects); err != nil {
			return 0, nil, err
		}
		if last := words[len(words)-1]; last[0] == '=' {
			return number(last[1:]), &playedWatch{player: p, ctx: ctx, at: number(last[1:])}, nil
		}
	}
}

func (p *player) Newest(ctx context.Context) (keepwatch.Revision, error) {
	p.record("newest")
	words, failure := p.next(ctx)
	if failure != nil {
		return 0, failure
	}
	return number(words[1]), nil
}

func (p *player) Unchanged(ctx context.Context, from, to keepwatch.Revision) error {
	p.record("unchanged %d..%d", from, to)
	if _, failure := p.next(ctx); failure != nil {
		return failure
	}
	return nil
}

func (p *player) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	p.record("watch %d", from)
	words, failure := p.next(ctx)
	if failure != nil {
		return nil, failure
	}
	if words[0] != "open" {
		panic("a watch cannot be answered by " + words[0])
	}
	return &playedWatch{player: p, ctx: ctx, at: from}, nil
}

type playedWatch struct {
	*player
	ctx context.Context
	at  keepwatch.Revision
}

func (w *playedWatch) Close() {}

// Next plays "batch TO +a@3 ~a@4 -a@5", "bookmark TO" or "sleep 5s".
func (w *playedWatch) Next() (keepwatch.Batch, error) {
	words, failure := w.next(w.ctx)
	if failure != nil {
		return keepwatch.Batch{}, failure
	}
	if words[0] == "sleep" {
		d, _ := time.ParseDuration(words[1])
		time.Sleep(d) // virtual
		return w.Next()
	}
	b := keepwatch.Batch{From: w.at, To: number(words[1])}
	for _, word := range words[2:] {
		o := parse(word[1:])
		types := map[byte]keepwatch.ChangeType{'+': keepwatch.Added, '~': keepwatch.Modified, '-': keepwatch.Deleted}
		b.Changes = append(b.Changes, keepwatch.Change{Type: types[word[0]], Revision: o.revision, Object: o})
	}
	w.at = b.To
	return b, nil
}

type object struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
}

func (o *object) Key() keepwatch.Key           { return o.key }
func (o *object) UID() keepwatch.UID           { return o.uid }
func (o *object) Revision() keepwatch.Revision { return o.revision }

// parse reads name@revision or name/uid@revision.
func parse(word string) *object {
	name, revision, _ := strings.Cut(word, "@")
	name, uid, _ := strings.Cut(name, "/")
	return &object{keepwatch.Key{Name: name}, keepwatch.UID(name + uid), number(revision)}
}

func number(s string) keepwatch.Revision {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return keepwatch.Revision(n)
}

func floor(r keepwatch.Revision) string {
	if r == 0 {
		return ""
	}
	return fmt.Sprintf(" ≥%d", r)
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
