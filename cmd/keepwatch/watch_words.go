package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/term"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/stream"
)

// words tells people on stderr how the stream is doing: a line for each
// reconnect, and on a terminal the progress of lists in a line that is rewritten.
// It belongs to the goroutine that runs the stream.
type words struct {
	out      io.Writer
	resource string
	live     bool      // out is a terminal, and the data go elsewhere
	shown    time.Time // when the line of progress was written last; zero when there is none
	// unsaid is a line that is said once it turns out to matter; empty when there is
	// none.
	unsaid string
	// idle is what was done about a silence, if the newest failure was one.
	idle reflector.Verdict
}

func newWords(out, data io.Writer) *words {
	return &words{out: out, live: isTerminal(out) && !isTerminal(data)}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// progressEvery spares the terminal.
const progressEvery = 100 * time.Millisecond

// notice is the reflector's observer.
func (w *words) notice(n reflector.Notice) {
	if n.Failure == nil {
		w.sayUnsaid()
		w.progress(n)
		return
	}
	line := fmt.Sprintf("%v; %s", n.Failure, decision(n))
	switch {
	case n.Verdict == reflector.Stop: // whoever ends says why
		w.unsaid = ""
	case n.Failure.Kind == keepwatch.StreamingListUnsupported:
		w.unsaid = line // if it is the list itself that is refused, the next failure says so
	case !w.again(n):
		w.sayUnsaid()
		w.say("%s", line)
	}
	w.idle = ""
	if n.Failure.Kind == keepwatch.Idle {
		w.idle = n.Verdict
	}
}

// again reports whether a failure is one more silence that has cost nothing: where nothing happens and
// no bookmarks are sent, there is one every few minutes. The reflector resumes after the first and asks
// for the newest revision after the next; when that question is not answered either, it is no silence
// that costs nothing.
func (w *words) again(n reflector.Notice) bool {
	return n.Failure.Kind == keepwatch.Idle && w.idle != "" && (n.Verdict == reflector.Resume || w.idle == reflector.Resume)
}

func (w *words) sayUnsaid() {
	if w.unsaid != "" {
		w.say("%s", w.unsaid)
		w.unsaid = ""
	}
}

// decision says what is done about a failure.
func decision(n reflector.Notice) string {
	var what string
	switch n.Verdict {
	case reflector.Resume:
		what = fmt.Sprintf("resuming at %d", n.Held)
	case reflector.Verify:
		what = fmt.Sprintf("asking for the newest revision, then resuming at %d", n.Held)
	case reflector.RelistNow:
		what = "listing again"
	case reflector.ListAgain:
		what = "asking again"
	case reflector.LeaveOut:
		what = "leaving it out"
	case reflector.Proceed:
		what = fmt.Sprintf("watching from %d all the same", n.Held)
	}
	if n.Failure.Kind == keepwatch.StreamingListUnsupported {
		what = "listing in pages"
	}
	if n.Wait > 0 {
		what += " in " + n.Wait.Round(100*time.Millisecond).String()
	}
	return what
}

func (w *words) progress(n reflector.Notice) {
	if !w.live || n.Listed == 0 || n.Time.Sub(w.shown) < progressEvery {
		return
	}
	w.shown = n.Time
	fmt.Fprintf(w.out, "\r\x1b[Klisting %s %s", w.resource, grouped(n.Listed))
	if n.Remaining > 0 {
		fmt.Fprintf(w.out, " of %s", grouped(n.Listed+n.Remaining))
	}
}

func (w *words) say(format string, args ...any) {
	w.clear()
	fmt.Fprintf(w.out, "keepwatch: "+format+"\n", args...)
}

// clear removes the line of progress.
func (w *words) clear() {
	if !w.shown.IsZero() {
		fmt.Fprint(w.out, "\r\x1b[K")
		w.shown = time.Time{}
	}
}

// grouped is a number as people read it: 41,200.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// narrator says aloud what the output itself has no place for.
type narrator struct {
	stream.Sink
	words *words
	aloud bool
}

func (s *narrator) Write(m stream.Message) error {
	switch m := m.(type) {
	case stream.Synced:
		s.words.clear()
		if s.aloud {
			s.words.say("%s: synced at %d, objects: %s", s.words.resource, m.Revision, grouped(int64(m.Count)))
		}
	case stream.Gap:
		if s.aloud {
			s.words.say("%s: the history from %d to %d is gone (%s), the difference follows", s.words.resource, m.From, m.To, m.Reason)
		}
	}
	return s.Sink.Write(m)
}
