package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// Settle waits until nothing is written and both servers, and the history, have followed
// every resource to the newest revision. Afterwards answers do not depend on the time of
// the request.
func (w *World) Settle(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, await.Deadline, true,
		func(ctx context.Context) (bool, error) {
			now, err := w.now(ctx)
			if err != nil {
				return false, err
			}
			last = w.follow(ctx, now)
			w.revision = now
			if last != nil {
				return false, nil
			}
			return w.history.reaches(ctx, now)
		})
	if err != nil {
		return fmt.Errorf("the servers don't settle: %w; last: %w", err, last)
	}
	w.past = append(w.past, w.revision)
	return nil
}

// now is etcd's newest revision.
func (w *World) now(ctx context.Context) (int64, error) {
	answer, err := w.etcd.Get(ctx, "any")
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

// follow reports whether both servers are at a revision in every resource: a consistent
// read lets them follow, if there are no writes. kube-apiserver opens some resources once for each
// version. Keepwatch answers all versions from one of them, but passes YAML on to the version's own. A
// proxy follows each encoding by itself.
func (w *World) follow(ctx context.Context, revision int64) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for _, side := range []*Side{w.theirs, w.ours} {
		for _, r := range slices.Concat([]resource{namespaceResource, olderWidgetResource}, w.written, w.kinds) {
			for _, accept := range []string{"", "application/yaml", protobufType + ",application/json"} {
				if accept == "application/yaml" && r.sample == nil || strings.HasPrefix(accept, protobufType) &&
					!w.comparison.encodings {
					continue
				}
				group.Go(func() error {
					at, err := side.revision(ctx, r, accept)
					if err != nil {
						return err
					}
					if at != revision {
						return fmt.Errorf("%s has %s at %d, etcd is at %d", side.Name, r.name, at, revision)
					}
					return nil
				})
			}
		}
	}
	return group.Wait()
}

func (s *Side) revision(ctx context.Context, r resource, accept string) (int64, error) {
	answer := s.Ask(ctx, Request{Path: r.collection(""), Options: url.Values{"limit": {"1"}}, Accept: accept})
	page, err := answer.page()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.Name, err)
	}
	return strconv.ParseInt(page.ResourceVersion, 10, 64)
}

// page is the metadata of a list.
type page struct{ ResourceVersion, Continue string }

func (a Answer) page() (page, error) {
	var list struct{ Metadata page }
	if a.Status != http.StatusOK || a.Incomplete != "" {
		return page{}, fmt.Errorf("no list: %d %s", a.Status, head(a))
	}
	err := json.Unmarshal(readable(mediaType(a.Header), a.Body), &list)
	return list.Metadata, err
}
