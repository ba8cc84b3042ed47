package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

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
	var event struct{ Object metav1.PartialObjectMetadata }
	if err := json.Unmarshal([]byte(line), &event); err != nil || event.Object.ResourceVersion == "" {
		r.Fatalf("no event: %q", line)
	}
	return event.Object.ResourceVersion
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
