package proxy

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// frame returns an event as a server writes it.
func frame(t *testing.T, kind, revision, text string, isProtobuf bool) []byte {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: revision},
		Data: map[string]string{"text": text}}
	if text == metav1.InitialEventsAnnotationKey {
		object.Annotations = map[string]string{text: "true"}
	}
	if !isProtobuf {
		body, err := json.Marshal(map[string]any{"type": kind, "object": object})
		if err != nil {
			t.Fatal(err)
		}
		return append(body, '\n')
	}
	raw, err := object.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := (&runtime.Unknown{Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	body, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"),
		envelope...)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// The position of a watch is the revision of its last whole event, wherever the parts in which it arrives end.
func TestFrameReader(t *testing.T) {
	type event struct {
		kind, revision, text string
		position             keepwatch.Revision // behind it
	}
	long := strings.Repeat("x", 3*maxFrame)
	for name, test := range map[string]struct {
		begin  frameReader
		events []event
	}{
		"events": {frameReader{at: 5}, []event{{"ADDED", "7", "x", 7}, {"MODIFIED", "8", "", 8},
			{"DELETED", "9", "ERROR", 9}, {"BOOKMARK", "12", "", 12}}},
		"a long one": {frameReader{at: 5}, []event{{"ADDED", "7", "x", 7}, {"ADDED", "8", long, 0}, {"ADDED", "9", "", 9}}},
		"an error":   {frameReader{at: 5}, []event{{"ADDED", "7", "", 7}, {"ERROR", "", "", 0}, {"ADDED", "9", "", 0}}},
		"of any state": {frameReader{initial: true}, []event{{"ADDED", "7", "BOOKMARK", 0}, {"ADDED", "3", "", 0},
			{"BOOKMARK", "9", "", 9}, {"ADDED", "10", "", 10}}},
		"a streaming list": {frameReader{initial: true, endsList: true}, []event{
			{"ADDED", "7", "", 0}, {"BOOKMARK", "8", "", 0}, {"ADDED", "3", "", 0},
			{"BOOKMARK", "9", metav1.InitialEventsAnnotationKey, 9}, {"ADDED", "10", "", 10},
		}},
	} {
		for _, isProtobuf := range []bool{false, true} {
			for _, size := range []int{1, 2, 3, 5, 64, 1 << 20} {
				r := test.begin
				r.protobuf = isProtobuf
				for i, e := range test.events {
					whole := frame(t, e.kind, e.revision, e.text, isProtobuf)
					for len(whole) > 0 {
						part := whole[:min(size, len(whole))]
						r.read(part)
						if whole = whole[len(part):]; len(whole) > 0 && r.position() != 0 {
							t.Fatalf("%s, protobuf %v, parts of %d: a position within event %d", name, isProtobuf, size, i)
						}
					}
					if e.text == long && size >= 1<<20 { // arrived as a whole
						continue
					}
					if r.position() != e.position {
						t.Fatalf("%s, protobuf %v, parts of %d: position %d behind event %d, want %d", name, isProtobuf, size,
							r.position(), i, e.position)
					}
				}
			}
		}
	}
}

// lines opens a watch, and returns its lines until it ends.
func (r *crowdRig) lines(ctx context.Context, query string, header ...string) <-chan string {
	r.Helper()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.serve.URL+"/api/v1/namespaces/default/configmaps?watch=1&"+
		query, nil)
	if err != nil {
		r.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer own")
	q.Header.Set("Accept", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	answer, err := r.serve.Client().Do(q)
	if err != nil || answer.StatusCode != http.StatusOK {
		r.Fatal(answer, err)
	}
	all := make(chan string, 10_000)
	go func() {
		defer close(all)
		defer answer.Body.Close()
		body := bufio.NewReader(answer.Body)
		for {
			line, err := body.ReadString('\n')
			if err != nil {
				if err != io.EOF || line != "" {
					all <- fmt.Sprintf("%s: %v", line, err)
				}
				return
			}
			all <- line
		}
	}()
	return all
}

// revisionOf returns the revision of an event in JSON.
func (r *crowdRig) revisionOf(line string) string {
	r.Helper()
	_, revision, _ := decodeEvent([]byte(line), false)
	if revision == 0 {
		r.Fatalf("no event: %q", line)
	}
	return revision.String()
}

// unready returns how many requests were forwarded because memory had not what they need.
func (r *crowdRig) unready() float64 {
	return r.forwarded(reasonNotReady) + r.forwarded(reasonRevision)
}

// A forwarded watch ends when memory can continue it, behind a whole event, and its client receives each event once
// from both. A watch without bookmarks, whose client may not continue, stays open.
func TestForwardedWatchesAreTakenOver(t *testing.T) {
	for _, query := range []string{"allowWatchBookmarks=true&resourceVersion=",
		"allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion="} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			r := newWaitingRig(t, 0)
			r.proxy.takeovers.hasten()
			first, err := r.maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
				metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			r.write("b", "") // the first list is behind the revision from which the watches are
			staying := r.lines(t.Context(), "resourceVersion="+first.ResourceVersion)
			var leaving <-chan string
			await.True(t, "the watch is allowed, and forwarded", func() bool { // reviews fail on a machine that is busy
				before := r.unready()
				leaving = r.lines(t.Context(), query+first.ResourceVersion, "Accept-Encoding", "gzip")
				return r.unready() > before
			})
			var got, want []string
			n, last := 0, "" // last is the revision of the newest line
			of := func(name, line string) bool { return strings.Contains(line, `"name":"`+name+`"`) }
			await.True(t, "the watch has ended", func() bool {
				n++
				r.write("a", fmt.Sprint(n))
				for {
					select {
					case line, open := <-leaving:
						if !open {
							return true
						}
						last = r.revisionOf(line)
						if of("a", line) && last != first.ResourceVersion {
							got = append(got, last) // not the initial events
						}
					default:
						return false
					}
				}
			})
			if last == "" {
				t.Fatal("it ended before it had an event that memory has")
			}
			before := r.unready()
			resumed := r.lines(t.Context(), query[:strings.Index(query, "&")]+"&resourceVersion="+last)
			if r.unready() != before {
				t.Error("memory does not continue the watch")
			}
			r.write("a", "last")
			last = r.newestOf("a")
			for len(got) == 0 || got[len(got)-1] != last {
				if line := await.Receive(t, "an event from memory", resumed); of("a", line) {
					got = append(got, r.revisionOf(line))
				} else if line == "" {
					t.Fatal("the watch from memory has ended")
				}
			}
			for len(want) == 0 || want[len(want)-1] != last {
				if line := await.Receive(t, "an event of the watch without bookmarks", staying); of("a", line) {
					want = append(want, r.revisionOf(line))
				} else if line == "" {
					t.Fatal("the watch without bookmarks has ended")
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
			if n := r.takenOver(); n < 1 {
				t.Errorf("%v watches were taken over", n)
			}
		})
	}
}

// newestOf returns the revision of a config map.
func (r *crowdRig) newestOf(name string) string {
	r.Helper()
	m, err := r.maps.Get(r.Context(), name, metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return m.ResourceVersion
}

// takenOver returns how many watches were taken over.
func (r *crowdRig) takenOver() (sum float64) {
	r.Helper()
	families, err := r.proxy.registry.Gather()
	if err != nil {
		r.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "keepwatch_proxy_watches_taken_over_total" {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// hasten lets young watches be taken over.
func (t *takeovers) hasten() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.youngest = time.Nanosecond
}

// No more watches end in one turn than may connect again at once.
func TestTakeoversAreBounded(t *testing.T) {
	t.Parallel()
	r := newWaitingRig(t, 0)
	r.write("a", "x")
	at := r.newestOf("a")
	await.True(t, "the resource is followed", func() bool {
		r.fetch("/api/v1/namespaces/default/configmaps?resourceVersion=0", "application/json")
		return r.proxy.Status().Saved["list"] > 0
	})
	from, err := keepwatch.ParseRevision(at)
	if err != nil {
		t.Fatal(err)
	}
	open := &takeovers{open: map[*forwardedWatch]bool{}, total: r.proxy.takeovers.total}
	for range takeoversAtOnce + 7 {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.serve.URL+
			"/api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=true&resourceVersion="+at, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept", "application/json")
		info, err := r.proxy.infos.NewRequestInfo(q)
		if err != nil {
			t.Fatal(err)
		}
		open.open[&forwardedWatch{request: q, info: info, end: func() {}, frames: frameReader{at: from}}] = true
	}
	for _, want := range []int{takeoversAtOnce, takeoversAtOnce + 7} {
		open.turn(r.proxy.caches)
		ended := 0
		for w := range open.open {
			if w.ended {
				ended++
			}
		}
		if ended != want {
			t.Errorf("%d watches have ended, want %d", ended, want)
		}
	}
}
