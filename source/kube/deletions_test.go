package kube

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// Deletions at the revision that the stream has reached are changes of the next one, and are not lost with a stream
// that ends before.
func TestDeletionsAtTheReachedRevision(t *testing.T) {
	for name, test := range map[string]struct {
		frames []string
		to     keepwatch.Revision
		want   []string
	}{
		"at the start": {[]string{podFrame("DELETED", "a", 5), podFrame("DELETED", "b", 5), podFrame("MODIFIED", "c",
			9)}, 9, []string{"DELETED a@9", "DELETED b@9", "MODIFIED c@9"}},
		"behind another": {[]string{podFrame("ADDED", "c", 7), podFrame("DELETED", "a", 7), podFrame("DELETED", "b", 8)},
			8, []string{"ADDED c@7", "DELETED a@8", "DELETED b@8"}},
		"before a bookmark": {[]string{podFrame("DELETED", "a", 5), bookmarkFrame(8)}, 8, []string{"DELETED a@8"}},
		"the same bookmark": {[]string{podFrame("DELETED", "a", 5), bookmarkFrame(5), bookmarkFrame(9)}, 9,
			[]string{"DELETED a@9"}},
		"created again": {[]string{podFrame("DELETED", "a", 5), podFrame("ADDED", "a", 9)}, 9, []string{"DELETED a@9",
			"ADDED a@9"}},
		"repeated": {[]string{podFrame("DELETED", "a", 5), podFrame("DELETED", "a", 5), podFrame("ADDED", "c", 9)},
			9, []string{"DELETED a@9", "ADDED c@9"}},
		"a repeated newest": {[]string{podFrame("DELETED", "a", 7), podFrame("DELETED", "a", 7), podFrame("ADDED", "c", 9)},
			9, []string{"DELETED a@7", "DELETED a@7", "ADDED c@9"}},
		"the stream's end": {[]string{podFrame("ADDED", "c", 7), podFrame("DELETED", "a", 7)}, 7, []string{"ADDED c@7"}},
		"an earlier one": {[]string{podFrame("ADDED", "c", 7), podFrame("DELETED", "a", 6), podFrame("ADDED", "d", 9)}, 9,
			[]string{"ADDED c@7", "DELETED a@6", "ADDED d@9"}},
		"another one's turn": {[]string{podFrame("DELETED", "a", 5), podFrame("DELETED", "b", 6), podFrame("DELETED", "b", 6),
			podFrame("DELETED", "c", 6), bookmarkFrame(7)}, 7, []string{"DELETED a@6", "DELETED b@6", "DELETED b@6",
			"DELETED c@7"}},
	} {
		t.Run(name, func(t *testing.T) {
			overEach(t, func(w http.ResponseWriter, _ *http.Request) { send(w, test.frames...) }, Options{},
				func(t *testing.T, s *Source) {
					batches, err := drain(open(t, s))
					wantFailure(t, err, keepwatch.Ended, "watch pods: the server ended the stream")
					wantHistory(t, batches, 5, test.to, test.want...)
				})
		})
	}
}

// A server that sends deletions without end at one revision is not believed.
func TestDeletionsAreBounded(t *testing.T) {
	name := strings.Repeat("x", 1<<20)
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, _ *http.Request) {
		for i := range 128 {
			send(w, podFrame("DELETED", fmt.Sprint(name, i), 5))
		}
	}), Options{})
	batches, err := drain(open(t, s))
	wantFailure(t, err, keepwatch.ProtocolViolation, "64 MiB, at revision 5")
	if len(batches) > 0 {
		t.Errorf("%d batches", len(batches))
	}
}
