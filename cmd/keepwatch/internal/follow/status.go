package follow

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/messages"
	"github.com/keepwatch/keepwatch/internal/startup"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/transfer/apitypes"
)

// statusPrinter prints the status of the stream to stderr: a line for each reconnect, and
// the progress of lists, on a terminal in a line that it rewrites. It belongs to the
// goroutine that runs the stream.
type statusPrinter struct {
	out      io.Writer
	sink     string // its name in each line; empty if it is the only one
	resource string
	live     bool      // out is a terminal, and stdout is not
	drawn    time.Time // when the progress line was written last; zero if there is none
	logged   time.Time // when the progress was printed last, or a list began; zero between lists. Not on a terminal
	// pending is a line that is printed unless the next notice makes it unnecessary; empty
	// if there is none.
	pending string
	// idle is the decision on the newest failure if that was Idle.
	idle  reflector.Decision
	short bool // the newest watch is a short one
}

func newStatusPrinter(out, data io.Writer) *statusPrinter {
	return &statusPrinter{out: out, live: messages.Redraws(out) && !messages.Redraws(data)}
}

const (
	// progressEvery limits how often the progress line is rewritten.
	progressEvery = 100 * time.Millisecond
	// progressLogged is how often a long list is printed where no line is rewritten.
	progressLogged = 30 * time.Second
)

// observe is the reflector's observer.
func (w *statusPrinter) observe(n reflector.Notice) {
	if n.Failure == nil {
		w.flushPending()
		w.progress(n)
		return
	}
	line := fmt.Sprintf("%v; %s", n.Failure, decision(n))
	switch {
	case n.Decision == reflector.Stop: // the command prints the cause of its end
		w.pending = ""
	case n.Failure.Kind == keepwatch.StreamingListUnsupported:
		w.pending = line // if lists are refused as well, the next failure is printed
	case n.Failure.Kind == keepwatch.Ended && n.Decision == reflector.Resume && w.short:
	case !w.isRepeatedIdle(n):
		w.flushPending()
		w.printf("%s", line)
	}
	w.idle = ""
	if n.Failure.Kind == keepwatch.Idle {
		w.idle = n.Decision
	}
}

// watchTimeout returns the time of the next watch for kube.Options. The end of a short one is not printed.
func (w *statusPrinter) watchTimeout(stale bool) time.Duration {
	w.short = stale
	return apitypes.WatchTimeout(stream.Identity{}, stale)
}

// retryRequest sends a request whose response is needed before the stream can begin, until it succeeds or fails with a
// final error. It prints a line for each attempt.
func (w *statusPrinter) retryRequest(ctx context.Context, request func(context.Context) error) error {
	return startup.Retry(ctx, w.printf, request)
}

// isRepeatedIdle reports whether a failure is another idle timeout without consequence. Where
// nothing changes and the server sends no bookmarks, there is one every few minutes: the
// reflector resumes after the first and requests the newest revision after the second. If
// that request fails as well, the failure has consequences.
func (w *statusPrinter) isRepeatedIdle(n reflector.Notice) bool {
	return n.Failure.Kind == keepwatch.Idle && w.idle != "" && (n.Decision == reflector.Resume ||
		w.idle == reflector.Resume)
}

func (w *statusPrinter) flushPending() {
	if w.pending != "" {
		w.printf("%s", w.pending)
		w.pending = ""
	}
}

// decision describes the decision on a failure.
func decision(n reflector.Notice) string {
	var action string
	switch n.Decision {
	case reflector.Resume:
		action = fmt.Sprintf("resuming at %d", n.Revision)
	case reflector.Verify:
		action = fmt.Sprintf("requesting the newest revision, then resuming at %d", n.Revision)
	case reflector.Relist:
		action = "listing again"
	case reflector.ListAgain:
		action = "retrying"
	case reflector.Skip:
		action = "skipping it"
	case reflector.Proceed:
		action = fmt.Sprintf("watching from %d anyway", n.Revision)
	}
	if n.Failure.Kind == keepwatch.StreamingListUnsupported {
		action = "listing in pages"
	}
	if n.Wait > 0 {
		action += " in " + n.Wait.Round(100*time.Millisecond).String()
	}
	return action
}

func (w *statusPrinter) progress(n reflector.Notice) {
	switch {
	case n.Listed == 0:
		w.logged = time.Time{}
	case w.live && n.Time.Sub(w.drawn) >= progressEvery:
		w.drawn = n.Time
		fmt.Fprint(w.out, "\r\x1b[K"+w.listing(n))
	case w.live:
	case w.logged.IsZero():
		w.logged = n.Time
	case n.Time.Sub(w.logged) >= progressLogged:
		w.logged = n.Time
		w.printf("%s", w.listing(n))
	}
}

// listing describes the progress of a list.
func (w *statusPrinter) listing(n reflector.Notice) string {
	text := "listing " + w.resource + " " + grouped(n.Listed)
	if n.Remaining > 0 {
		text += " of " + grouped(n.Listed+n.Remaining)
	}
	return text
}

func (w *statusPrinter) printf(format string, args ...any) {
	w.clear()
	text := fmt.Sprintf(format, args...)
	if w.sink != "" {
		text = w.sink + ": " + text
	}
	fmt.Fprintln(w.out, "keepwatch:", messages.Line(text))
}

// clear removes the progress line.
func (w *statusPrinter) clear() {
	if !w.drawn.IsZero() {
		fmt.Fprint(w.out, "\r\x1b[K")
		w.drawn = time.Time{}
	}
}

// grouped returns a number with separators: 41,200.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
