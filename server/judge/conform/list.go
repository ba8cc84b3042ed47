package conform

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

// attempts is the number of writes after which a read is judged. A stale read is rare.
const attempts = 20

// find returns the state of an object in a list, or nil.
func (l *listed) find(name string) *object {
	for _, o := range l.items {
		if o.key.Name == name {
			return o
		}
	}
	return nil
}

func listsNewest(ctx context.Context, s *subject) (outcome, error) {
	o, err := s.create(ctx, "a", nil, "0")
	for i := range attempts {
		if err != nil {
			return outcome{}, err
		}
		l, err := s.mustList(ctx, nil)
		if err != nil {
			return outcome{}, err
		}
		if got := l.find(o.key.Name); !got.is(o) || l.revision < o.revision {
			return broken(o.state(), fmt.Sprintf("%s in a list at %d", got.state(), l.revision)), nil
		}
		if o, err = s.update(ctx, o, nil, fmt.Sprint(i+1)); err != nil {
			return outcome{}, err
		}
	}
	if err := s.remove(ctx, o); err != nil {
		return outcome{}, err
	}
	l, err := s.mustList(ctx, nil)
	if err != nil {
		return outcome{}, err
	}
	if got := l.find(o.key.Name); got != nil {
		return broken("no object after its deletion", got.String()), nil
	}
	return kept, nil
}

func getsNewest(ctx context.Context, s *subject) (outcome, error) {
	for i := range attempts {
		o, err := s.create(ctx, "a", nil, "0")
		if err != nil {
			return outcome{}, err
		}
		if o, err = s.update(ctx, o, nil, fmt.Sprint(i+1)); err != nil {
			return outcome{}, err
		}
		got, a, err := s.get(ctx, o.key.Name, nil)
		if err != nil {
			return outcome{}, err
		}
		if !got.is(o) {
			return broken(o.state(), fmt.Sprintf("%s, %v", got.state(), a)), nil
		}
		if err := s.remove(ctx, o); err != nil {
			return outcome{}, err
		}
		if _, a, err = s.get(ctx, o.key.Name, nil); err != nil {
			return outcome{}, err
		}
		if a.code != http.StatusNotFound {
			return broken("404 after the deletion", a.String()), nil
		}
	}
	return kept, nil
}

func getsNotOlder(ctx context.Context, s *subject) (outcome, error) {
	o, err := s.create(ctx, "a", nil, "0")
	for i := range attempts {
		if err != nil {
			return outcome{}, err
		}
		got, a, err := s.get(ctx, o.key.Name, query("resourceVersion", o.revision.String()))
		if err != nil {
			return outcome{}, err
		}
		if !got.isNotOlder(o) {
			return broken(o.state()+" or later", fmt.Sprintf("%s, %d", got.state(), a.code)), nil
		}
		if o, err = s.update(ctx, o, nil, fmt.Sprint(i+1)); err != nil {
			return outcome{}, err
		}
	}
	return kept, nil
}

func listsAny(ctx context.Context, s *subject) (outcome, error) {
	all, err := s.fill(ctx, 3, noLabels, "")
	if err != nil {
		return outcome{}, err
	}
	l, err := s.mustList(ctx, query("resourceVersion", "0"))
	if err != nil {
		return outcome{}, err
	}
	result, err := s.isStateAt(ctx, l, 0)
	if err == nil && result.verdict == NotOffered && l.revision >= all[2].revision {
		return sameState(&listed{revision: l.revision, items: all}, l), nil // the state is gone, and known
	}
	return result, err
}

// sameState compares two lists of one revision.
func sameState(want, got *listed) outcome {
	w, g := statesOf(want.items), statesOf(got.items)
	if want.revision != got.revision || !slices.Equal(w, g) {
		return broken(fmt.Sprintf("revision %d with %v", want.revision, w), fmt.Sprintf("revision %d with %v", got.revision,
			g))
	}
	return kept
}

func listsNotOlder(ctx context.Context, s *subject) (outcome, error) {
	o, err := s.create(ctx, "a", nil, "0")
	for i := range attempts {
		if err != nil {
			return outcome{}, err
		}
		q := query("resourceVersion", o.revision.String())
		if i%2 == 1 {
			q.Set("resourceVersionMatch", "NotOlderThan")
		}
		l, err := s.mustList(ctx, q)
		if err != nil {
			return outcome{}, err
		}
		if got := l.find(o.key.Name); !got.isNotOlder(o) || l.revision < o.revision {
			return broken(o.state()+" or later", fmt.Sprintf("%s in a list at %d", got.state(), l.revision)), nil
		}
		o, err = s.update(ctx, o, nil, fmt.Sprint(i+1))
		if err != nil {
			return outcome{}, err
		}
	}
	return kept, nil
}

// past creates objects, lists them and changes each of them in another way.
func (s *subject) past(ctx context.Context) (*listed, error) {
	all, err := s.fill(ctx, 4, noLabels, "then")
	if err != nil {
		return nil, err
	}
	then, err := s.mustList(ctx, nil)
	if err != nil {
		return nil, err
	}
	if _, err := s.update(ctx, all[0], nil, "now"); err != nil {
		return nil, err
	}
	if err := s.remove(ctx, all[1]); err != nil {
		return nil, err
	}
	if err := s.remove(ctx, all[2]); err != nil {
		return nil, err
	}
	if _, err := s.create(ctx, "item-002", nil, "again"); err != nil {
		return nil, err
	}
	_, err = s.create(ctx, "new", nil, "now")
	return then, err
}

func listsExact(ctx context.Context, s *subject) (outcome, error) {
	then, err := s.past(ctx)
	if err != nil {
		return outcome{}, err
	}
	got, a, err := s.exactly(ctx, then.revision)
	switch {
	case err != nil:
		return outcome{}, err
	case a.code == http.StatusGone:
		return notOffered("the state of a second ago is gone: " + a.String()), nil
	case got == nil:
		return broken(fmt.Sprintf("the state at %d, or 410", then.revision), a.String()), nil
	}
	return sameState(then, got), nil
}

func listsExactWithLimit(ctx context.Context, s *subject) (outcome, error) {
	then, err := s.past(ctx)
	if err != nil {
		return outcome{}, err
	}
	all := &listed{revision: then.revision}
	q := query("resourceVersion", then.revision.String(), "limit", "1")
	for range then.count + 1 {
		page, a, err := s.list(ctx, q)
		switch {
		case err != nil:
			return outcome{}, err
		case a.code == http.StatusGone:
			return notOffered("the state of a second ago is gone: " + a.String()), nil
		case page == nil:
			return broken(fmt.Sprintf("a page of the state at %d, or 410", then.revision), a.String()), nil
		case page.revision != then.revision:
			return broken(fmt.Sprintf("a page at %d", then.revision), fmt.Sprintf("a page at %d", page.revision)), nil
		}
		all.items = append(all.items, page.items...)
		if page.token == "" {
			return sameState(then, all), nil
		}
		q = query("limit", "1", "continue", page.token)
	}
	return broken(fmt.Sprintf("%d pages", then.count), "more"), nil
}

func refusesInvalidLists(ctx context.Context, s *subject) (outcome, error) {
	if _, err := s.fill(ctx, 3, noLabels, ""); err != nil {
		return outcome{}, err
	}
	first, err := s.mustList(ctx, query("limit", "1"))
	if err != nil {
		return outcome{}, err
	}
	revision := first.revision.String()
	cases := []url.Values{
		query("resourceVersionMatch", "Exact"),
		query("resourceVersionMatch", "NotOlderThan"),
		query("resourceVersion", "0", "resourceVersionMatch", "Exact"),
		query("resourceVersion", revision, "resourceVersionMatch", "Newest"),
		query("resourceVersion", "first"),
		query("sendInitialEvents", "true"),
	}
	if first.token != "" {
		cases = append(cases, query("limit", "1", "continue", first.token, "resourceVersion", revision),
			query("limit", "1", "continue", first.token, "resourceVersionMatch", "NotOlderThan"))
	}
	return s.refuses(ctx, cases)
}

// refuses judges whether the server refuses each request.
func (s *subject) refuses(ctx context.Context, cases []url.Values) (outcome, error) {
	result := kept
	for _, q := range cases {
		a, err := s.do(ctx, http.MethodGet, "", q, asJSON, nil)
		if err != nil {
			return outcome{}, err
		}
		if !a.refused() {
			result = result.and(broken("400 or 422 for "+q.Encode(), a.String()))
		}
	}
	return result, nil
}

// ahead is the distance of a revision that no server reaches during a run.
const ahead = 1_000_000_000

func refusesFutureLists(ctx context.Context, s *subject) (outcome, error) {
	o, err := s.create(ctx, "a", nil, "")
	if err != nil {
		return outcome{}, err
	}
	future := (o.revision + ahead).String()
	requests := []struct {
		name  string
		query url.Values
	}{
		{"", query("resourceVersion", future)},
		{"", query("resourceVersion", future, "resourceVersionMatch", "NotOlderThan")},
		{"", query("resourceVersion", future, "resourceVersionMatch", "Exact")},
		{o.key.Name, query("resourceVersion", future)},
	}
	outcomes := make([]outcome, len(requests))
	group, ctx := errgroup.WithContext(ctx)
	for i, r := range requests {
		group.Go(func() error {
			a, err := s.inFuture().do(ctx, http.MethodGet, r.name, r.query, asJSON, nil)
			outcomes[i] = kept
			if err == nil && !tooLarge(a) {
				outcomes[i] = broken("504 with the cause ResourceVersionTooLarge for "+r.query.Encode(), a.String())
			}
			return err
		})
	}
	err = group.Wait()
	result := kept
	for _, one := range outcomes {
		result = result.and(one)
	}
	return result, err
}

// tooLarge reports whether an answer says that the revision does not exist yet.
func tooLarge(a answer) bool {
	status := a.status()
	return a.code == http.StatusGatewayTimeout && status.Details != nil &&
		slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool {
			return c.Type == metav1.CauseTypeResourceVersionTooLarge
		})
}

func listsSelected(ctx context.Context, s *subject) (outcome, error) {
	colors := []string{"red", "green", "blue", ""}
	all, err := s.fill(ctx, 8, func(i int) map[string]string {
		if colors[i%4] == "" {
			return nil
		}
		return map[string]string{"color": colors[i%4]}
	}, "")
	if err != nil {
		return outcome{}, err
	}
	result := kept
	for selector, match := range map[string]func(color string) bool{
		"color=red":              func(c string) bool { return c == "red" },
		"color!=red":             func(c string) bool { return c != "red" },
		"color in (red,green)":   func(c string) bool { return c == "red" || c == "green" },
		"color notin (red,blue)": func(c string) bool { return c != "red" && c != "blue" },
		"color":                  func(c string) bool { return c != "" },
		"!color":                 func(c string) bool { return c == "" },
		"color=purple":           func(string) bool { return false },
	} {
		one, err := s.selects(ctx, query("labelSelector", selector), all, func(o *object) bool {
			return match(o.labels["color"])
		})
		if err != nil {
			return outcome{}, err
		}
		result = result.and(one)
	}
	name := all[3].key.Name
	for selector, match := range map[string]func(*object) bool{
		"metadata.name=" + name:                func(o *object) bool { return o.key.Name == name },
		"metadata.name!=" + name:               func(o *object) bool { return o.key.Name != name },
		"metadata.namespace=" + s.namespace:    func(*object) bool { return true },
		"metadata.namespace=" + s.prefix + "x": func(*object) bool { return false },
	} {
		one, err := s.selects(ctx, query("fieldSelector", selector), all, match)
		if err != nil {
			return outcome{}, err
		}
		result = result.and(one)
	}
	unknown, err := s.refuses(ctx, []url.Values{query("fieldSelector", "metadata.unknown=a"), query("labelSelector",
		"a b"), query("fieldSelector", "a")})
	return result.and(unknown), err
}

// selects judges one selector.
func (s *subject) selects(ctx context.Context, q url.Values, all []*object, match func(*object) bool) (outcome, error) {
	l, err := s.mustList(ctx, q)
	if err != nil {
		return outcome{}, err
	}
	var want []*object
	for _, o := range all {
		if match(o) {
			want = append(want, o)
		}
	}
	if w, g := statesOf(want), statesOf(l.items); !slices.Equal(w, g) {
		return broken(fmt.Sprintf("%v for %s", w, q.Encode()), fmt.Sprint(g)), nil
	}
	return kept, nil
}

func ordersRevisions(ctx context.Context, s *subject) (outcome, error) {
	var last keepwatch.Revision
	for i := range attempts {
		o, err := s.create(ctx, fmt.Sprintf("item-%03d", i), nil, "")
		if err != nil {
			return outcome{}, err
		}
		if o.revision <= last {
			return broken(fmt.Sprintf("a revision above %d", last), o.String()), nil
		}
		last = o.revision
	}
	return kept, nil
}
