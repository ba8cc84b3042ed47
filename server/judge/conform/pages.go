package conform

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// pageLimit is the limit of pages: less than the objects of these rules.
const pageLimit = "7"

func pagesComplete(ctx context.Context, s *subject) (outcome, error) {
	all, err := s.fill(ctx, 30, noLabels, "")
	if err != nil {
		return outcome{}, err
	}
	page, err := s.mustList(ctx, query("limit", pageLimit))
	if err != nil {
		return outcome{}, err
	}
	if page.token == "" && page.count > 7 {
		return notOffered("the server ignores limit"), nil
	}
	// Changes before, at and behind the place of the token.
	if _, err := s.update(ctx, all[2], nil, "changed"); err != nil {
		return outcome{}, err
	}
	for _, o := range []*object{all[6], all[7], all[20]} {
		if err := s.remove(ctx, o); err != nil {
			return outcome{}, err
		}
	}
	if _, err := s.create(ctx, "item-0205", nil, ""); err != nil {
		return outcome{}, err
	}
	items, revision := page.items, page.revision
	for page.token != "" && len(items) <= len(all) {
		next, a, err := s.list(ctx, query("limit", pageLimit, "continue", page.token))
		switch {
		case err != nil:
			return outcome{}, err
		case a.code == http.StatusGone:
			return notOffered("the state of a second ago is gone: " + a.String()), nil
		case next == nil:
			return broken("a page, or 410", a.String()), nil
		case next.revision != revision:
			return broken(fmt.Sprintf("a page at %d", revision), fmt.Sprintf("a page at %d", next.revision)), nil
		}
		items, page = append(items, next.items...), next
	}
	var want, got []string
	for _, o := range all {
		want = append(want, o.state())
	}
	for _, o := range items {
		got = append(got, o.state())
	}
	if !slices.Equal(want, got) {
		return broken(strings.Join(want, ", "), strings.Join(got, ", ")), nil
	}
	return kept, nil
}

func pagesNotOlder(ctx context.Context, s *subject) (outcome, error) {
	all, err := s.fill(ctx, 20, noLabels, "")
	if err != nil {
		return outcome{}, err
	}
	least := all[len(all)-1].revision
	whole, err := s.mustList(ctx, nil) // a namespace that was given has other objects, too
	if err != nil {
		return outcome{}, err
	}
	got, most := &listed{}, whole.count+1
	q := query("limit", pageLimit, "resourceVersion", least.String(), "resourceVersionMatch", "NotOlderThan")
	for range most {
		page, a, err := s.list(ctx, q)
		switch {
		case err != nil:
			return outcome{}, err
		case a.code == http.StatusGone:
			return notOffered("the state of a second ago is gone: " + a.String()), nil
		case page == nil:
			return broken("a page, or 410", a.String()), nil
		case got.revision == 0 && page.revision < least:
			return broken(fmt.Sprintf("a page at %d or later", least), fmt.Sprintf("a page at %d", page.revision)), nil
		case got.revision != 0 && page.revision != got.revision:
			return broken(fmt.Sprintf("a page at %d", got.revision), fmt.Sprintf("a page at %d", page.revision)), nil
		}
		if got.revision == 0 { // changes behind the first page
			if err := s.remove(ctx, all[15]); err != nil {
				return outcome{}, err
			}
		}
		got.revision, got.items = page.revision, append(got.items, page.items...)
		if page.token == "" {
			return s.isStateAt(ctx, got, least)
		}
		q = query("limit", pageLimit, "continue", page.token)
	}
	return broken(fmt.Sprintf("at most %d pages", most), "more"), nil
}

func pagesExpire(ctx context.Context, s *subject) (outcome, error) {
	all, err := s.fill(ctx, 10, noLabels, "")
	if err != nil {
		return outcome{}, err
	}
	first, err := s.mustList(ctx, query("limit", pageLimit))
	if err != nil {
		return outcome{}, err
	}
	old, reason := aged(first.token)
	if old == "" {
		return notOffered(reason), nil
	}
	newest, err := s.update(ctx, all[9], nil, "changed")
	if err != nil {
		return outcome{}, err
	}
	// Without a limit the answer has the rest, in which a namespace that was given may have many other objects.
	then, a, err := s.list(ctx, query("continue", old))
	switch {
	case err != nil:
		return outcome{}, err
	case then != nil && then.revision == 1:
		return notOffered("the history reaches back to revision 1"), nil
	case then != nil:
		return broken("410, or a page at 1", fmt.Sprintf("a page at %d", then.revision)), nil
	case a.refused():
		return notOffered("the server accepts no token with another revision: " + a.String()), nil
	case a.code != http.StatusGone || a.status().Continue == "":
		return broken("410 with a continue token", a.String()), nil
	}
	rest, a, err := s.list(ctx, query("continue", a.status().Continue))
	switch {
	case err != nil:
		return outcome{}, err
	case rest == nil:
		return broken("the objects behind the token's key", a.String()), nil
	}
	want := statesOf(append(all[len(first.items):9:9], newest))
	if names := statesOf(rest.items); !slices.Equal(want, names) || rest.revision < newest.revision {
		return broken(fmt.Sprintf("%v at %d or later", want, newest.revision), fmt.Sprintf("%v at %d", names, rest.revision)),
			nil
	}
	return kept, nil
}

// aged returns a continue token in Kubernetes' form with the first revision in place of its own, or the
// reason why there is none.
func aged(token string) (old, reason string) {
	if token == "" {
		return "", "the server ignores limit"
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	var parsed struct {
		APIVersion      string `json:"v"`
		ResourceVersion int64  `json:"rv"`
		StartKey        string `json:"start"`
	}
	if err != nil || json.Unmarshal(text, &parsed) != nil || parsed.APIVersion != "meta.k8s.io/v1" {
		return "", "the tokens have a form of the server's own: their expiry cannot be caused"
	}
	parsed.ResourceVersion = 1
	text, _ = json.Marshal(parsed) // numbers and strings cannot fail
	return base64.RawURLEncoding.EncodeToString(text), ""
}

func pagesCountTheRest(ctx context.Context, s *subject) (outcome, error) {
	if _, err := s.fill(ctx, 10, func(int) map[string]string { return map[string]string{"color": "red"} },
		""); err != nil {
		return outcome{}, err
	}
	page, err := s.mustList(ctx, query("limit", "3"))
	if err != nil {
		return outcome{}, err
	}
	if page.token == "" {
		return notOffered("the server ignores limit"), nil
	}
	result := kept
	if page.remaining != nil && *page.remaining < 1 { // the API does not promise that it is exact
		result = broken("more than 0 remain", fmt.Sprint(*page.remaining))
	}
	selected, err := s.mustList(ctx, query("limit", "3", "labelSelector", "color=red"))
	if err != nil {
		return outcome{}, err
	}
	if selected.remaining != nil {
		result = result.and(broken("no count with a selector", fmt.Sprint(*selected.remaining)))
	}
	return result, nil
}

func refusesInvalidTokens(ctx context.Context, s *subject) (outcome, error) {
	if _, err := s.fill(ctx, 5, noLabels, ""); err != nil {
		return outcome{}, err
	}
	encoded := func(token string) string { return base64.RawURLEncoding.EncodeToString([]byte(token)) }
	tokens := []string{
		"x", encoded("x"), encoded("{}"),
		encoded(`{"v":"meta.k8s.io/v2","rv":1,"start":"a"}`),
		encoded(`{"v":"meta.k8s.io/v1","rv":1,"start":"../../../../secrets/"}`),
	}
	result := kept
	for _, token := range tokens {
		_, a, err := s.list(ctx, query("limit", "1", "continue", token))
		if err != nil {
			return outcome{}, err
		}
		if !a.refused() && a.code != http.StatusGone {
			result = result.and(broken("400 or 410 for continue="+token, a.String()))
		}
	}
	return result, nil
}
