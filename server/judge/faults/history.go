package faults

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	maxCollections = 1024             // with a history; others have none
	maxRevisions   = 64               // of one collection; older ones are thinned out
	probeTimeout   = 10 * time.Second // of a request for a revision
	maxProbe       = 1 << 20          // bytes of its answer
)

// history knows earlier revisions of collections, for states of the past. It learns them by requests of
// its own, with a client's credentials. It is safe for concurrent use.
type history struct {
	upstream *upstream

	mu          sync.Mutex
	collections map[string]*collection // by path
}

// collection is what is known of one path.
type collection struct {
	revisions []observed // ascending
	rewound   string     // the revision that all rewinds show, once there was one
}

type observed struct {
	revision string
	at       time.Time
}

func newHistory(u *upstream) *history {
	return &history{upstream: u, collections: make(map[string]*collection)}
}

// observe asks upstream for the newest revision of a request's collection.
func (h *history) observe(ctx context.Context, r *http.Request) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	probe := h.upstream.request(ctx, r)
	probe.URL.RawQuery = url.Values{"limit": {"1"}}.Encode()
	probe.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json")
	probe.Header.Del("Accept-Encoding")
	response, err := h.upstream.rounds.RoundTrip(probe)
	if err != nil {
		return
	}
	defer response.Body.Close()
	var list metav1.PartialObjectMetadataList
	text, err := io.ReadAll(io.LimitReader(response.Body, maxProbe))
	if err != nil || response.StatusCode != http.StatusOK || json.Unmarshal(text, &list) != nil ||
		list.ResourceVersion == "" {
		return
	}
	h.add(r.URL.Path, observed{list.ResourceVersion, time.Now()})
}

func (h *history) add(path string, o observed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.collections[path]
	if c == nil {
		if len(h.collections) >= maxCollections {
			return
		}
		c = &collection{}
		h.collections[path] = c
	}
	if n := len(c.revisions); n > 0 && !isNewer(o.revision, c.revisions[n-1].revision) {
		return
	}
	if len(c.revisions) == maxRevisions { // keep the first, for the longest lag, and every second one
		kept := c.revisions[:0]
		for i := 0; i < maxRevisions; i += 2 {
			kept = append(kept, c.revisions[i])
		}
		c.revisions = kept
	}
	c.revisions = append(c.revisions, o)
}

// past returns a revision of a collection that was the newest one lag ago, or if there is none the
// oldest known one. It returns "" if only the newest one is known. For a rewind it stays the same.
func (h *history) past(path string, lag time.Duration, isRewind bool) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.collections[path]
	if c == nil || len(c.revisions) < 2 {
		return ""
	}
	if isRewind && c.rewound != "" {
		return c.rewound
	}
	found := c.revisions[0]
	for _, o := range c.revisions[:len(c.revisions)-1] {
		if time.Since(o.at) >= lag {
			found = o
		}
	}
	if isRewind {
		c.rewound = found.revision
	}
	return found.revision
}

// isNewer compares revisions. What cannot be compared is not newer.
func isNewer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// pastQuery returns the query that requests a list at a revision of the past.
func pastQuery(query url.Values, revision string) string {
	query.Set("resourceVersion", revision)
	query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	return query.Encode()
}
