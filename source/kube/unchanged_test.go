package kube

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
)

// requests records the queries that a server received.
type requests struct {
	mu  sync.Mutex
	all []string
}

func (r *requests) add(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, kind)
}

func (r *requests) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.all, ", ")
}

// Unchanged asks a watch whose end is near, and lists only if that decides nothing.
func TestUnchanged(t *testing.T) {
	const from, to = 5, 9
	lists := map[string][]string{
		"5": {pod("a", 3), pod("b", 5)},
		"9": {pod("a", 3), pod("b", 5)},
	}
	with := func(at string, items ...string) map[string][]string {
		return map[string][]string{"5": lists["5"], "9": lists["9"], at: items}
	}
	const watched, compared = "watch 5", "watch 5, list 9, list 5"
	for name, test := range map[string]struct {
		frames []string
		lists  map[string][]string
		want   keepwatch.FailureKind // 0 for unchanged
		asked  string
	}{
		"a bookmark at the newest revision": {[]string{bookmarkFrame(9)}, nil, 0, watched},
		"a bookmark above it":               {[]string{bookmarkFrame(10)}, nil, 0, watched},
		"an event above it":                 {[]string{podFrame("ADDED", "c", 12)}, nil, 0, watched},
		"an event":                          {[]string{podFrame("MODIFIED", "a", 7)}, nil, keepwatch.Silent, watched},
		"a bookmark that is too old, an event": {[]string{bookmarkFrame(6), podFrame("MODIFIED", "a", 7)}, nil,
			keepwatch.Silent, watched},
		"a deletion that waits for a revision": {[]string{podFrame("DELETED", "a", 5)}, nil, keepwatch.Silent, watched},
		"nothing, and equal states":            {nil, lists, 0, compared},
		"a bookmark that is too old":           {[]string{bookmarkFrame(5)}, lists, 0, compared},
		"a watch that begins from scratch":     {[]string{podFrame("ADDED", "a", 3)}, lists, 0, compared},
		"nothing, and an object was changed": {nil, with("9", pod("a", 3), pod("b", 8)), keepwatch.Silent,
			"watch 5, list 9"},
		"nothing, and an object was deleted":   {nil, with("9", pod("a", 3)), keepwatch.Silent, compared},
		"nothing, and the first state is gone": {nil, map[string][]string{"9": lists["9"]}, keepwatch.Expired, compared},
		"nothing, and the server was restored": {nil, map[string][]string{"5": lists["5"]}, keepwatch.RevisionTooLarge,
			"watch 5, list 9"},
		"nothing, and no lists at one revision": {nil, map[string][]string{"9": nil}, keepwatch.Silent, "watch 5, list 9"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked requests
			answer := func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query()
				at := q.Get("resourceVersion")
				if q.Get("watch") == "true" {
					asked.add("watch " + at)
					send(w, test.frames...)
					return
				}
				asked.add("list " + at)
				items, ok := test.lists[at]
				switch {
				case q.Get("resourceVersionMatch") != "Exact":
					t.Errorf("a list at %s is not exact", at)
				case !ok && at == fmt.Sprint(from):
					w.WriteHeader(http.StatusGone)
					send(w, statusText(410, "Expired", "too old", ""))
					return
				case !ok:
					w.WriteHeader(http.StatusGatewayTimeout)
					send(w, statusText(504, "Timeout", "Too large resource version",
						`"causes":[{"reason":"ResourceVersionTooLarge"}]`))
					return
				case items == nil:
					w.WriteHeader(http.StatusBadRequest)
					send(w, statusText(400, "BadRequest", "resourceVersionMatch is not supported", ""))
					return
				}
				w.Write([]byte(strings.Replace(podList(0, "", items...), `"resourceVersion":"0"`, `"resourceVersion":"`+at+`"`, 1)))
			}
			s := newSource(t, serve(t, "HTTP/1.1", answer), Options{})
			err := s.Unchanged(t.Context(), from, to)
			if test.want == 0 && err != nil {
				t.Error(err)
			} else if test.want != 0 {
				wantFailure(t, err, test.want)
			}
			if asked.String() != test.asked {
				t.Errorf("asked %q, want %q", asked.String(), test.asked)
			}
		})
	}
}

// A watch that stays silent is compared by lists once its end is overdue, unless the server has sent bookmarks before:
// two equal lists do not show an object that came and went.
func TestUnchangedWhileWatchesAreSilent(t *testing.T) {
	for _, bookmarked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := remoteServer{script: func(s slowWriter) { s.wait(time.Hour) }}.source(t)
			s.bookmarked.Store(bookmarked)
			begin := time.Now()
			decided, err := s.askWatch(t.Context(), 5, 9)
			if decided != bookmarked || (err != nil) != bookmarked {
				t.Errorf("bookmarks before: %v; decided %v, %v", bookmarked, decided, err)
			} else if bookmarked {
				wantFailure(t, err, keepwatch.Silent)
			}
			if took := time.Since(begin); took != confirmingWatch+time.Second {
				t.Errorf("waited %v", took)
			}
		})
	}
}

// A watch that the server ends without its bookmark decides if it has sent bookmarks before. A bookmark that is too
// old, or a request that fails, does not.
func TestUnchangedWithoutTheBookmark(t *testing.T) {
	for name, test := range map[string]struct {
		frames []string
		status int
		before bool
		want   bool
	}{
		"no bookmark, as always": {nil, http.StatusOK, false, false},
		"no bookmark any more":   {nil, http.StatusOK, true, true},
		"an old one":             {[]string{bookmarkFrame(5)}, http.StatusOK, true, false},
		"no watch":               {nil, http.StatusServiceUnavailable, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			bookmark := test.before
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, _ *http.Request) {
				if bookmark {
					bookmark = false
					send(w, bookmarkFrame(5))
					return
				}
				w.WriteHeader(test.status)
				send(w, test.frames...)
			}), Options{})
			if test.before {
				if decided, err := s.askWatch(t.Context(), 4, 5); !decided || err != nil {
					t.Fatalf("a bookmark: decided %v, %v", decided, err)
				}
			}
			if decided, err := s.askWatch(t.Context(), 5, 9); decided != test.want || (err != nil) != test.want {
				t.Errorf("decided %v, %v", decided, err)
			}
		})
	}
}
