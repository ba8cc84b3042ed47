package apitypes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// fakeAPI is an API server without objects: it answers for its types what discovery and lists ask for, and refuses
// CustomResourceDefinitions. It belongs to the test's goroutine between requests.
type fakeAPI struct {
	plain  bool                // it has no CustomResourceDefinitions
	types  map[string][]string // of a group, in version v1
	hidden bool                // /apis shows no group, and groups are not found
	down   map[string]bool     // groups whose types are answered 503
	kinds  map[string]string   // of types, in place of their names in capitals
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := ""
	if parts[0] == "apis" && len(parts) > 1 {
		group, parts = parts[1], parts[1:]
	}
	types, known := f.types[group]
	switch {
	case group == "apiextensions.k8s.io" && f.plain:
		http.NotFound(w, r)
	case group == "apiextensions.k8s.io":
		f.refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case parts[0] == "apis": // all groups
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups: []metav1.APIGroup{}}
		for name := range f.types {
			if name != "" && !f.hidden {
				list.Groups = append(list.Groups, f.group(name))
			}
		}
		f.answer(w, list)
	case f.down[group]:
		f.refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	case !known, f.hidden && group != "":
		f.refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case len(parts) == 1:
		f.answer(w, f.group(group))
	case len(parts) == 2:
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
		for _, name := range types {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: name, Kind: cmp.Or(f.kinds[name], strings.ToUpper(name)), Namespaced: name != "nodes",
				Verbs: metav1.Verbs{"list", "watch"},
			})
		}
		f.answer(w, list)
	default:
		f.answer(w, metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{Kind: "List", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"},
		})
	}
}

func (f *fakeAPI) group(name string) metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: name + "/v1", Version: "v1"}
	return metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name,
		Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
	}
}

func (f *fakeAPI) answer(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o)
}

func (f *fakeAPI) refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason,
		Code: int32(code),
	})
}

// membersRig requests the types of patterns.
type membersRig struct {
	*testing.T
	api *fakeAPI
	*members
}

func newMembersRig(t *testing.T, api *fakeAPI, options Options) *membersRig {
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	options.Config = &rest.Config{Host: server.URL, QPS: -1}
	w, err := newMembers(New(options))
	if err != nil {
		t.Fatal(err)
	}
	return &membersRig{t, api, w}
}

// request returns what has joined and left, as "type namespace".
func (r *membersRig) request() (joined, left []string, err error) {
	changes, err := r.members.request(r.Context())
	for _, c := range changes {
		if name := c.ID.Resource + " " + c.ID.Namespace; c.Gone > 0 {
			left = append(left, name)
		} else {
			joined = append(joined, name)
		}
	}
	slices.Sort(joined)
	return joined, left, err
}

func (r *membersRig) want(what string, joined, left []string, incomplete, pending bool) {
	r.Helper()
	j, l, err := r.request()
	if !slices.Equal(j, joined) || !slices.Equal(l, left) || (err != nil) != incomplete || r.pending() != pending {
		r.Errorf("%s: %q joined, %q left, pending %v, %v; want %q, %q, %v", what, j, l, r.pending(), err, joined, left,
			pending)
	}
}

// The types of a group that the server does not show for a moment stay, and the others join. The pattern * leaves out
// types that are named, groups of other patterns, Secrets, and the second group of Events.
func TestIncompleteAnswers(t *testing.T) {
	api := &fakeAPI{
		types: map[string][]string{
			"": {"events", "nodes", "pods", "secrets"}, "apps": {"deployments"}, "batch": {"jobs"}, "events.k8s.io": {"events"},
		},
		down: map[string]bool{"apps": true},
	}
	pods := Resource{}
	pods.Type.Resource.Version, pods.Type.Resource.Resource = "v1", "pods"
	r := newMembersRig(t, api, Options{
		Resources: []Resource{pods},
		Patterns:  []Pattern{{}, {Group: "batch", Selection: Selection{Namespace: "kube-system"}}},
	})
	r.want("a group is down", []string{"events ", "jobs.batch kube-system", "nodes "}, nil, true, false)
	api.down = nil
	r.want("it is up", []string{"deployments.apps "}, nil, false, false)
	api.down = map[string]bool{"apps": true}
	r.want("it is down again", nil, nil, true, false)
	api.down, api.hidden = nil, true
	r.want("a server of an older version", nil, nil, false, true)
	api.hidden = false
	r.want("the newer one", nil, nil, false, false)
}

// A pattern with a namespace leaves out the types whose objects have none, also those that an earlier process stored.
func TestPatternOfANamespace(t *testing.T) {
	r := newMembersRig(t, &fakeAPI{types: map[string][]string{"": {"nodes", "pods"}, "apps": {"deployments"}}}, Options{
		Patterns: []Pattern{{Selection: Selection{Namespace: "shop"}}, {Group: "apps"}},
	})
	r.addStored([]sink.Status{
		{ID: stream.Identity{Resource: "nodes"}}, {ID: stream.Identity{Resource: "configmaps", Namespace: "shop"}},
	})
	r.want("at the start", []string{"deployments.apps ", "pods shop"}, nil, false, true)
	for id := range r.all {
		if id.Resource == "nodes" {
			t.Errorf("%v is followed", id)
		}
	}
}

// A type whose definition cannot be read leaves when the server has not shown it for a while, and not before.
func TestTypeLeavesAfterAWhile(t *testing.T) { testTypeLeaves(t, false) }

// A type of a server without CustomResourceDefinitions leaves, too.
func TestTypeLeavesAPlainServer(t *testing.T) { testTypeLeaves(t, true) }

func testTypeLeaves(t *testing.T, plain bool) {
	api := &fakeAPI{types: map[string][]string{"": {"pods"}, "example.com": {"widgets"}}, plain: plain}
	var said []string
	r := newMembersRig(t, api, Options{
		Patterns: []Pattern{{Group: "example.com"}}, LeaveAfter: time.Hour,
		Logf: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) },
	})
	r.want("at the start", []string{"widgets.example.com "}, nil, false, false)
	api.hidden = true
	for range 3 {
		r.want("not shown", nil, nil, false, true)
	}
	api.hidden = false
	r.want("shown again", nil, nil, false, false)
	api.hidden = true
	r.want("not shown once more", nil, nil, false, true)
	for _, m := range r.all {
		m.absent = m.absent.Add(-time.Hour)
	}
	r.want("not shown for an hour", nil, []string{"widgets.example.com "}, false, false)
	want := []string{
		"the server does not show widgets.example.com: if that lasts for 1h0m0s, what was delivered of it is ended",
		"the server does not show widgets.example.com: if that lasts for 1h0m0s, what was delivered of it is ended",
		"the server has no widgets.example.com any more: what was delivered of it is ended",
	}
	if !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}

// A type that is named stays, and answers 404 when its definition was deleted. That is no answer about other types:
// they join, and leave.
func TestNamedTypeIsAbsent(t *testing.T) {
	api := &fakeAPI{types: map[string][]string{"example.com": {"widgets"}}}
	widgets := Resource{}
	widgets.Type.Resource.Group, widgets.Type.Resource.Version, widgets.Type.Resource.Resource = "example.com", "v1",
		"widgets"
	r := newMembersRig(t, api, Options{Resources: []Resource{widgets}, Patterns: []Pattern{{Group: "example.org"}},
		LeaveAfter: time.Nanosecond})
	if _, err := r.resources(t.Context()); err != nil {
		t.Fatal(err)
	}
	delete(api.types, "example.com")
	api.types["example.org"] = []string{"gadgets", "gears"}
	r.want("without the named type", []string{"gadgets.example.org ", "gears.example.org "}, nil, false, false)
	api.types["example.org"] = []string{"gears"}
	r.want("not shown", nil, []string{"gadgets.example.org "}, false, false)
}

// A type whose definition was replaced by one with another kind or other short names joins again: what is stored of it
// says how clients find it.
func TestDefinitionIsReplaced(t *testing.T) {
	api := &fakeAPI{types: map[string][]string{"example.com": {"widgets"}}}
	r := newMembersRig(t, api, Options{Patterns: []Pattern{{Group: "example.com"}}})
	r.want("at the start", []string{"widgets.example.com "}, nil, false, false)
	r.want("the same", nil, nil, false, false)
	api.kinds = map[string]string{"widgets": "Gadget"}
	r.want("another kind", []string{"widgets.example.com "}, nil, false, false)
	r.want("the same kind", nil, nil, false, false)

	// Servers of two versions answer in turn: the changes become rare.
	for n, rest := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute} {
		api.kinds["widgets"] = fmt.Sprint("Kind", n)
		r.want("too soon", nil, nil, false, false)
		for _, m := range r.all {
			if m.rest != rest {
				t.Errorf("after %d changes it stays for %v, want %v", n+1, m.rest, rest)
			}
			m.changed = m.changed.Add(-rest)
		}
		r.want("after a while", []string{"widgets.example.com "}, nil, false, false)
	}
	for _, m := range r.all {
		m.changed = m.changed.Add(-time.Hour)
	}
	api.kinds["widgets"] = "Other"
	r.want("a long time later", []string{"widgets.example.com "}, nil, false, false)
	for _, m := range r.all {
		if m.rest != 30*time.Second {
			t.Errorf("then it stays for %v", m.rest)
		}
	}
}

// A type that had left, as far as could be known, and is back before its last revision was, is on its line again: a
// type that joins later is compared with it.
func TestTypeIsBackBeforeItHasLeft(t *testing.T) {
	api := &fakeAPI{types: map[string][]string{"": {"pods"}, "example.com": {"widgets"}}}
	r := newMembersRig(t, api, Options{Patterns: []Pattern{{Group: "example.com"}}, LeaveAfter: time.Nanosecond})
	r.want("at the start", []string{"widgets.example.com "}, nil, false, false)
	delete(api.types, "example.com")
	// on the line, too
	other := lineMember{Stream: sink.Stream{ID: stream.Identity{Resource: "gears"}}, probe: muteSource{}}
	r.lines = append(r.lines, other)
	r.want("not shown", nil, nil, false, true)
	r.want("not shown, and no revision", nil, nil, false, true)
	r.drop(other.ID)
	api.types["example.com"] = []string{"widgets"}
	if _, left, err := r.request(); len(left) > 0 || err != nil {
		t.Fatalf("%q left, %v", left, err)
	}
	if lines := r.linesWithout(stream.Identity{}); len(lines) != 1 || len(lines[0].members) != 1 {
		t.Errorf("the lines are %v", lines)
	}
}

// muteSource does not say its revision.
type muteSource struct{ keepwatch.Source }

func (muteSource) Newest(context.Context) (keepwatch.Revision, error) {
	return 0, keepwatch.Failed(keepwatch.Unreachable, "no answer")
}

// Changes of definitions are followed although the server does not serve them at the start, and not if it forbids that.
func TestDefinitionsAreFollowed(t *testing.T) {
	var first atomic.Int32
	first.Store(http.StatusNotFound)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code := int(first.Load())
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Query().Has("sendInitialEvents"):
			w.WriteHeader(http.StatusBadRequest)
		case code != 0:
			if code == http.StatusNotFound {
				first.Store(0)
			}
			w.WriteHeader(code)
		case r.URL.Query().Has("watch"):
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			_, _ = w.Write([]byte(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},
				"items":[{"metadata":{"name":"widgets.example.com","uid":"u","resourceVersion":"5"}}]}`))
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	w, err := newMembers(New(Options{Config: &rest.Config{Host: server.URL, QPS: -1},
		Patterns: []Pattern{{Group: "example.com"}}}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	changed, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		w.watchCRDs(ctx, changed)
	}()
	<-changed
	cancel()
	<-ended
	first.Store(http.StatusForbidden)
	w.watchCRDs(t.Context(), changed)
}
