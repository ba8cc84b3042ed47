package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy/internal/tables"
	"github.com/keepwatch/keepwatch/server/testserver"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// personalRig is a test server with some namespaces, and replicas of a proxy with personal views in front of it.
type personalRig struct {
	*testing.T
	server   *rest.Config // of its administrator
	admin    kubernetes.Interface
	replicas []*replica
}

type replica struct {
	proxy *Proxy
	serve *httptest.Server
}

// inhabited are namespaces whose names are prefixes of one another, and are in another order as keys than as names.
var inhabited = []string{"a", "a-b", "ab", "b"}

// never is when the sets of views have settled, unless a test edits that: no list waits for the first revision from
// which a watch can continue it.
const never = time.Hour

func newPersonalRig(t *testing.T, replicas int, edit func(*Config)) *personalRig {
	return newPersonalRigOf(t, testserver.New(t, testserver.RBAC()).Config(), replicas, edit)
}

func newPersonalRigOf(t *testing.T, server *rest.Config, replicas int, edit func(*Config)) *personalRig {
	r := &personalRig{T: t, server: server}
	var err error
	r.admin, err = kubernetes.NewForConfig(r.server)
	r.must(err)
	r.namespace("moving")
	for _, name := range inhabited {
		r.namespace(name)
		for i := range 3 {
			r.write(name, fmt.Sprint("m", i), "0")
		}
	}
	for range replicas {
		config := Config{Server: rest.CopyConfig(r.server), OwnToken: "own", Personal: &Personal{}, settled: never}
		edit(&config)
		r.replicas = append(r.replicas, r.start(config))
	}
	return r
}

func (r *personalRig) start(config Config) *replica {
	p, err := New(config)
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(ctx) }()
	serve := httptest.NewServer(p)
	r.Cleanup(func() {
		cancel()
		serve.CloseClientConnections()
		serve.Close()
		<-ended
	})
	r.until("roles and namespaces are followed", func() bool {
		followed := p.access.Cluster()
		_, err := followed.Namespaces()
		_, seen := followed.Roles()
		return err == nil && seen
	})
	return &replica{p, serve}
}

func (r *personalRig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *personalRig) until(what string, is func() bool) {
	r.Helper()
	await.True(r.T, what, is)
}

func (r *personalRig) namespace(name string) {
	r.Helper()
	_, err := r.admin.CoreV1().Namespaces().Create(r.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	r.must(err)
}

// write writes a config map with a label.
func (r *personalRig) write(namespace, name, label string) {
	r.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"l": label}}}
	maps := r.admin.CoreV1().ConfigMaps(namespace)
	if _, err := maps.Update(r.Context(), m, metav1.UpdateOptions{}); err != nil {
		_, err = maps.Create(r.Context(), m, metav1.CreateOptions{})
		r.must(err)
	}
}

// user creates a service account, and returns its token.
func (r *personalRig) user(name string) string {
	r.Helper()
	accounts := r.admin.CoreV1().ServiceAccounts("default")
	_, err := accounts.Create(r.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	r.must(err)
	token, err := accounts.CreateToken(r.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	r.must(err)
	return token.Status.Token
}

// sees waits until the proxy follows the grants of a user, who may list in a number of namespaces.
func (r *personalRig) sees(token string, namespaces int) {
	r.Helper()
	of := fmt.Sprint(namespaces) + "/"
	r.until("the proxy follows the grants", func() bool {
		return strings.HasPrefix(r.get(0, token, anyState).header.Get(PersonalHeader), of)
	})
}

// grant lets a user read config maps in a namespace, or everywhere. Its own verbs take the place of the usual ones.
func (r *personalRig) grant(user, namespace string, verbs ...string) {
	r.Helper()
	if len(verbs) == 0 {
		verbs = []string{"get", "list", "watch"}
	}
	meta := metav1.ObjectMeta{Name: user}
	rules := []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces",
		"secrets"}}}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: user}}
	if namespace == "" {
		_, err := r.admin.RbacV1().ClusterRoles().Create(r.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
			metav1.CreateOptions{})
		r.must(err)
		_, err = r.admin.RbacV1().ClusterRoleBindings().Create(r.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
				Name: user},
		}, metav1.CreateOptions{})
		r.must(err)
		return
	}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: rules}
	if _, err := r.admin.RbacV1().Roles(namespace).Update(r.Context(), role, metav1.UpdateOptions{}); err != nil {
		_, err = r.admin.RbacV1().Roles(namespace).Create(r.Context(), role, metav1.CreateOptions{})
		r.must(err)
	}
	_, err := r.admin.RbacV1().RoleBindings(namespace).Create(r.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
	}, metav1.CreateOptions{})
	r.must(err)
}

// revoke undoes grant.
func (r *personalRig) revoke(user, namespace string) {
	r.Helper()
	if namespace == "" {
		r.must(r.admin.RbacV1().ClusterRoleBindings().Delete(r.Context(), user, metav1.DeleteOptions{}))
		return
	}
	r.must(r.admin.RbacV1().RoleBindings(namespace).Delete(r.Context(), user, metav1.DeleteOptions{}))
}

// authority is a config map that each namespace has some time after its creation.
const authority = "kube-root-ca.crt"

// seen is a response, as far as the tests look at it.
type seen struct {
	code   int
	header http.Header
	list   struct {
		Metadata struct {
			ResourceVersion, Continue string
			RemainingItemCount        *int64
			Annotations               map[string]string
		}
		Items           []metav1.PartialObjectMetadata
		Reason, Message string // of a Status
	}
}

// names are the objects, as namespace/name@revision.
func (s seen) names() (all []string) {
	for _, o := range s.list.Items {
		if o.Name == authority {
			continue
		}
		all = append(all, o.Namespace+"/"+o.Name+"@"+o.ResourceVersion)
	}
	return all
}

// request asks again when the answer says so, as a client of Kubernetes does: a server that is busy does not decide.
func (r *personalRig) request(ctx context.Context, address, token, path string,
	header ...string) (answer *http.Response) {
	r.Helper()
	await.State(r.T, path+" is answered", func() (bool, string) {
		answer = r.ask(ctx, address, token, path, header...)
		later := answer.Header.Get("Retry-After") != ""
		if later {
			answer.Body.Close()
		}
		return !later, answer.Status
	})
	return answer
}

func (r *personalRig) ask(ctx context.Context, address, token, path string, header ...string) *http.Response {
	r.Helper()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
	r.must(err)
	q.Header.Set("Authorization", "Bearer "+token)
	q.Header.Set("Accept", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(q)
	r.must(err)
	return response
}

func (r *personalRig) get(from int, token, path string) (s seen) {
	r.Helper()
	response := r.request(r.Context(), r.replicas[from].serve.URL, token, path)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	r.must(err)
	s.code, s.header = response.StatusCode, response.Header
	if err := json.Unmarshal(body, &s.list); err != nil {
		r.Fatalf("%s: %d %s", path, s.code, body)
	}
	return s
}

// union lists namespaces one by one at the server, at a revision, in the order of keys: the dumb twin of a personal
// list.
func (r *personalRig) union(revision, query string, namespaces ...string) (all []string) {
	r.Helper()
	for _, namespace := range namespaces {
		list, err := r.admin.CoreV1().ConfigMaps(namespace).List(r.Context(), metav1.ListOptions{
			ResourceVersion: revision, ResourceVersionMatch: metav1.ResourceVersionMatchExact, LabelSelector: query,
		})
		r.must(err)
		for _, m := range list.Items {
			if m.Name == authority {
				continue
			}
			all = append(all, m.Namespace+"/"+m.Name+"@"+m.ResourceVersion)
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		return strings.Compare(a[:strings.Index(a, "@")], b[:strings.Index(b, "@")])
	})
	return all
}

func (r *personalRig) want(s seen, query string, namespaces ...string) {
	r.Helper()
	if s.code != http.StatusOK {
		r.Fatalf("%d %s: %s", s.code, s.list.Reason, s.list.Message)
	}
	if want := r.union(s.list.Metadata.ResourceVersion, query, namespaces...); !slices.Equal(s.names(), want) {
		r.Fatalf("%v, want %v", s.names(), want)
	}
}

// anyState is a list that waits for no confirmation by the server, which takes a second while nothing is written.
const (
	configMaps = "/api/v1/configmaps"
	anyState   = configMaps + "?resourceVersion=0"
)

// A list that the server refuses has the objects of the namespaces in which the server allows it to the user, and says
// so. Without any such namespace, for others than namespaced resources, and for Secrets that are not named, the server
// refuses it.
func TestPersonalList(t *testing.T) {
	t.Parallel()
	r := newPersonalRig(t, 1, func(c *Config) { c.Personal.Annotate = true })
	ada, bob := r.user("ada"), r.user("bob")
	r.grant("ada", "a")
	r.grant("ada", "b")
	r.grant("bob", "ab")
	r.sees(ada, 2)
	r.sees(bob, 1)
	for user, s := range map[string]struct {
		token      string
		namespaces []string
	}{"ada": {ada, []string{"a", "b"}}, "bob": {bob, []string{"ab"}}} {
		for _, query := range []string{"", "?resourceVersion=0", "?labelSelector=l%3D0", "?labelSelector=l%3D1"} {
			selector := ""
			if _, label, ok := strings.Cut(query, "labelSelector="); ok {
				selector = strings.ReplaceAll(label, "%3D", "=")
			}
			got := r.get(0, s.token, configMaps+query)
			r.want(got, selector, s.namespaces...)
			all, err := r.admin.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			r.must(err)
			n := len(s.namespaces)
			if w := got.header.Get("Warning"); w != fmt.Sprintf(`299 - "personal view: %d of %d namespaces"`, n,
				len(all.Items)) {
				t.Errorf("%s: the warning %s", user, w)
			}
			if h := got.header; h.Get(PersonalHeader) != fmt.Sprintf("%d/%d", n, len(all.Items)) ||
				!strings.Contains(h.Get("Cache-Control"), "private") ||
				!slices.Contains(h.Values("Vary"), "Authorization") {
				t.Errorf("%s: the headers %v", user, h)
			}
			if got := got.list.Metadata.Annotations["keepwatch.io/namespaces"]; got != strings.Join(s.namespaces, ",") {
				t.Errorf("%s: the annotation %q", user, got)
			}
		}
	}
	r.want(r.get(0, ada, "/api/v1/namespaces/a/configmaps"), "", "a")
	for _, path := range []string{"/api/v1/nodes", "/api/v1/secrets", "/api/v1/pods"} {
		if got := r.get(0, ada, path); got.code != http.StatusForbidden {
			t.Errorf("%s: %d", path, got.code)
		}
	}
	namespaces := r.get(0, ada, "/api/v1/namespaces")
	if got := namespaces.names(); len(got) != 2 || !strings.HasPrefix(got[0], "/a@") || !strings.HasPrefix(got[1], "/b@") {
		t.Errorf("the namespaces that the user may get: %v", got)
	}
	if got := r.get(0, r.user("eve"), configMaps); got.code != http.StatusForbidden {
		t.Errorf("without any right: %d", got.code)
	}
}

// Without the flag, and for users of other groups, the server refuses.
func TestPersonalGroups(t *testing.T) {
	t.Parallel()
	r := newPersonalRig(t, 1, func(c *Config) { c.Personal.Groups = []string{"devs"} })
	ada := r.user("ada")
	r.grant("ada", "a")
	if got := r.get(0, ada, configMaps); got.code != http.StatusForbidden {
		t.Errorf("%d", got.code)
	}
	r.replicas[0].proxy.personal.Groups = []string{"devs", "system:serviceaccounts:default"}
	r.want(r.get(0, ada, configMaps), "", "a")
}

// Pages are those of one list. A token expires when the set changes, and when it is another user's; the error has a
// token that continues. A token of a personal view does not continue a list of everything.
func TestPersonalPages(t *testing.T) {
	t.Parallel()
	r := newPersonalRig(t, 1, func(*Config) {})
	ada, bob := r.user("ada"), r.user("bob")
	for _, namespace := range []string{"a", "a-b", "b"} {
		r.grant("ada", namespace)
	}
	r.grant("bob", "ab")
	r.sees(ada, 3)
	r.sees(bob, 1)
	first := r.get(0, ada, configMaps+"?limit=2")
	var all []string
	for page := first; ; page = r.get(0, ada, configMaps+"?limit=2&continue="+
		url.QueryEscape(page.list.Metadata.Continue)) {
		if page.code != http.StatusOK {
			t.Fatalf("a page: %d %s", page.code, page.list.Message)
		}
		if all = append(all, page.names()...); page.list.Metadata.Continue == "" {
			break
		}
	}
	if want := r.union(first.list.Metadata.ResourceVersion, "", "a", "a-b", "b"); !slices.Equal(all, want) {
		t.Errorf("%v, want %v", all, want)
	}
	next := configMaps + "?limit=2&continue=" + url.QueryEscape(first.list.Metadata.Continue)
	if got := r.get(0, bob, next); got.code != http.StatusGone {
		t.Errorf("another user continues with %d", got.code)
	}
	r.revoke("ada", "b")
	var gone seen
	r.until("the token has expired", func() bool { gone = r.get(0, ada, next); return gone.code == http.StatusGone })
	rest := r.get(0, ada, configMaps+"?continue="+url.QueryEscape(gone.list.Metadata.Continue))
	if got := append(first.names(), rest.names()...); rest.code != http.StatusOK || len(got) < 6 ||
		slices.ContainsFunc(got, func(n string) bool { return strings.HasPrefix(n, "b/") }) {
		t.Errorf("the rest is %d %v %s", rest.code, got, rest.list.Message)
	}
	r.grant("ada", "")
	r.until("ada may list everything", func() bool {
		got := r.get(0, ada, anyState)
		return got.code == http.StatusOK && got.header.Get(PersonalHeader) == ""
	})
	if got := r.get(0, ada, next); got.code != http.StatusGone {
		t.Errorf("a list of everything continues with %d", got.code)
	}
}

// While the proxy has no room for a resource, or cannot follow it, a personal view is unavailable and not forbidden:
// the user may read it.
func TestPersonalWithoutMemory(t *testing.T) {
	t.Parallel()
	r := newPersonalRig(t, 1, func(*Config) {})
	ada := r.user("ada")
	r.grant("ada", "a")
	r.sees(ada, 1)
	caches := r.replicas[0].proxy.caches
	for len(caches.followed()) > 0 {
		caches.giveUpOne()
	}
	answer := r.ask(t.Context(), r.replicas[0].serve.URL, ada, configMaps)
	answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("%s, Retry-After %q", answer.Status, answer.Header.Get("Retry-After"))
	}
	if got := r.get(0, r.user("eve"), configMaps); got.code != http.StatusForbidden {
		t.Errorf("without any right: %d", got.code)
	}
}

// While the server decides neither about a user nor about a token, a personal view is unavailable and not forbidden, as
// the forwarded request is. Who may read everything is answered by the server, and what cannot be a personal view, or
// the server has decided, is refused as it says it.
func TestPersonalUndecided(t *testing.T) {
	t.Parallel()
	var answers atomic.Pointer[map[string]int] // the codes of what is not answered by the server, by the end of the path
	answers.Store(&map[string]int{})
	var between *httptest.Server
	r := newPersonalRig(t, 1, func(c *Config) {
		direct, err := rest.TransportFor(rest.AnonymousClientConfig(c.Server))
		if err != nil {
			t.Fatal(err)
		}
		to, err := url.Parse(c.Server.Host)
		if err != nil {
			t.Fatal(err)
		}
		reverse := &httputil.ReverseProxy{Transport: direct, Rewrite: func(q *httputil.ProxyRequest) { q.SetURL(to) },
			FlushInterval: -1}
		between = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			for end, code := range *answers.Load() {
				if strings.HasSuffix(q.URL.Path, end) {
					w.WriteHeader(code)
					return
				}
			}
			if _, _, ok := q.BasicAuth(); ok { // is nobody for a server that accepts requests without credentials
				w.WriteHeader(http.StatusForbidden)
				return
			}
			reverse.ServeHTTP(w, q)
		}))
		t.Cleanup(between.Close)
		c.Server = &rest.Config{Host: between.URL, BearerToken: c.Server.BearerToken}
	})
	expect := func(what, authorization, path string, want int) {
		t.Helper()
		await.State(t, what, func() (bool, string) { // the server sees grants late
			answer := r.ask(t.Context(), r.replicas[0].serve.URL, "", path, "Authorization", authorization)
			answer.Body.Close()
			later := answer.Header.Get("Retry-After") != ""
			return answer.StatusCode == want && later == (want == http.StatusServiceUnavailable), answer.Status
		})
	}
	const nodes = "/api/v1/nodes?resourceVersion=0"
	proxy := r.replicas[0].proxy
	r.until("nodes are known to be in no namespace", func() bool {
		r.get(0, "own", nodes)
		return slices.ContainsFunc(proxy.caches.followed(), func(f *follower) bool { return f.resource.Resource == "nodes" })
	})
	for i, reviews := range []string{"/subjectaccessreviews", "/tokenreviews"} {
		ada, eve := fmt.Sprint("ada", i), fmt.Sprint("eve", i)
		token, everything := r.user(ada), r.user(eve)
		r.grant(ada, "a")
		r.grant(eve, "")
		answers.Store(&map[string]int{reviews: http.StatusTooManyRequests})
		expect("undecided", "Bearer "+token, anyState, http.StatusServiceUnavailable)
		expect("undecided, allowed everywhere", "Bearer "+everything, anyState, http.StatusOK)
		expect("undecided, in no namespace", "Bearer "+token, nodes, http.StatusForbidden)
		expect("credentials that are not reviewed", "Basic YTpi", anyState, http.StatusForbidden)
		answers.Store(&map[string]int{reviews: http.StatusForbidden})
		expect("the proxy may not have it reviewed", "Bearer "+token, anyState, http.StatusForbidden)
		answers.Store(&map[string]int{})
		r.sees(token, 1)
	}
	unknown, ada := r.user("unknown"), r.user("ada")
	r.grant("ada", "a")
	r.sees(ada, 1)
	_, open := r.watch(0, ada, "")
	r.expect(open, "ADDED", mapsOf("a")...)
	answers.Store(&map[string]int{"/api/v1/namespaces": http.StatusForbidden})
	between.CloseClientConnections()
	r.until("the proxy may not list namespaces", proxy.access.NamespacesRefused)
	if end := r.expect(open, "ERROR", "/"); end.Object.Reason != string(metav1.StatusReasonServiceUnavailable) {
		t.Errorf("the open watch ends with %q", end.Object.Reason)
	}
	answers.Store(&map[string]int{"/api/v1/namespaces": http.StatusForbidden,
		"/subjectaccessreviews": http.StatusTooManyRequests})
	expect("there are no personal views", "Bearer "+unknown, anyState, http.StatusForbidden)
}

// staleOnce is a view that has an earlier set when it is asked first.
type staleOnce struct {
	watchcache.View
	stale *watchcache.Namespaces
}

func (s *staleOnce) Namespaces() (*watchcache.Namespaces, <-chan struct{}, error) {
	if stale := s.stale; stale != nil {
		s.stale = nil
		return stale, nil, nil
	}
	return s.View.Namespaces()
}

// A list that waits, before it looks at its view or after, has what the user may read when it is answered.
func TestPersonalListThatWaits(t *testing.T) {
	t.Parallel()
	r := newPersonalRig(t, 1, func(*Config) {})
	ada := r.user("ada")
	r.grant("ada", "a")
	r.grant("ada", "b")
	r.sees(ada, 2)
	p := r.replicas[0].proxy
	next := p.reads
	p.reads = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		a := q.Context().Value(answerKey{}).(answer)
		before, _, err := a.shown.Namespaces()
		r.must(err)
		r.revoke("ada", "b")
		r.until("the view has one namespace", func() bool { has, _ := a.shown.Count(); return has == 1 })
		a.reader = a.reader.Within(&staleOnce{a.shown, before}, false)
		next.ServeHTTP(w, q.WithContext(context.WithValue(q.Context(), answerKey{}, a)))
	})
	r.want(r.get(0, ada, configMaps), "", "a")
}

// change is an event of a watch.
type change struct {
	Type   string
	Object struct {
		metav1.PartialObjectMetadata
		Reason, Message string // of a Status
	}
	at time.Time
}

func (c change) name() string { return c.Object.Namespace + "/" + c.Object.Name }

// watch opens a watch, whose events it sends until the test ends.
func (r *personalRig) watch(from int, token, query string) (code int, events chan change) {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	response := r.request(ctx, r.replicas[from].serve.URL, token, configMaps+"?watch=1&"+query)
	events, ended := make(chan change, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		defer close(events)
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			c := change{at: time.Now()}
			if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
				r.Errorf("%s: %v", lines.Text(), err)
				return
			}
			events <- c
		}
		if err := lines.Err(); err != nil && ctx.Err() == nil {
			r.Errorf("the watch: %v", err)
		}
	}()
	r.Cleanup(func() { cancel(); response.Body.Close(); <-ended })
	return response.StatusCode, events
}

// expect waits for events of some type with some names, in any order, and returns the last one.
func (r *personalRig) expect(events chan change, kind string, names ...string) (last change) {
	r.Helper()
	timeout := time.After(await.Deadline)
	for len(names) > 0 {
		select {
		case c, ok := <-events:
			if c.Type == "BOOKMARK" && kind != c.Type || c.Object.Name == authority {
				continue
			}
			i := slices.Index(names, c.name())
			if !ok || c.Type != kind || i < 0 {
				r.Fatalf("%s %s %s in place of %s of %v", c.Type, c.name(), c.Object.Reason, kind, names)
			}
			names, last = slices.Delete(names, i, i+1), c
		case <-timeout:
			r.Fatalf("no %s of %v", kind, names)
		}
	}
	return last
}

var mapsOf = func(namespace string) []string {
	return []string{namespace + "/m0", namespace + "/m1", namespace + "/m2"}
}

// A watch receives the objects of a namespace that is granted, behind which a bookmark follows, and the deletions of
// one that is revoked; and nothing of other namespaces. How soon is tested in package personal, with a virtual clock.
func TestPersonalWatch(t *testing.T) {
	t.Parallel()
	r := newPersonalRig(t, 1, func(*Config) {})
	ada := r.user("ada")
	r.grant("ada", "a")
	r.sees(ada, 1)
	_, events := r.watch(0, ada, "allowWatchBookmarks=true")
	r.expect(events, "ADDED", mapsOf("a")...)
	r.write("ab", "m0", "1") // not allowed
	r.write("a", "m0", "1")
	r.expect(events, "MODIFIED", "a/m0")

	before := time.Now()
	r.grant("ada", "ab")
	last := r.expect(events, "ADDED", mapsOf("ab")...)
	t.Logf("granted within %v", last.at.Sub(before).Round(time.Millisecond))
	r.expect(events, "BOOKMARK", "/")
	r.write("ab", "m1", "1")
	r.expect(events, "MODIFIED", "ab/m1")

	before = time.Now()
	r.revoke("ada", "ab")
	last = r.expect(events, "DELETED", mapsOf("ab")...)
	t.Logf("revoked within %v", last.at.Sub(before).Round(time.Millisecond))
	r.write("ab", "m1", "2")
	r.write("a", "m2", "1")
	r.expect(events, "MODIFIED", "a/m2")
}

// settled waits until a watch can continue a list, and returns its revision.
func (r *personalRig) settled(from int, token string) (revision string) {
	r.Helper()
	defer r.moving()()
	r.until("a watch continues a list", func() bool {
		revision = r.get(from, token, configMaps).list.Metadata.ResourceVersion
		return r.resumes(from, token, revision)
	})
	return revision
}

// moving lets revisions move on until stop is called.
func (r *personalRig) moving() (stop func()) {
	ctx, end := context.WithCancel(r.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m"}}
			_, _ = r.admin.CoreV1().ConfigMaps("moving").Create(ctx, m, metav1.CreateOptions{})
		}
	})
	return func() { end(); writing.Wait() }
}

// resumes reports whether a watch from a revision begins, of a user who may read namespace a: it has what is written
// there next.
func (r *personalRig) resumes(from int, token, revision string) bool {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	response := r.request(ctx, r.replicas[from].serve.URL, token, configMaps+"?watch=1&resourceVersion="+revision)
	defer response.Body.Close()
	r.write("a", "next", fmt.Sprint(time.Now().UnixNano()))
	var first change
	r.must(json.NewDecoder(response.Body).Decode(&first))
	return response.StatusCode == http.StatusOK && first.Type != "ERROR"
}

// A watch continues a list. When the set has changed since, or may have been another one at another replica, it
// receives 410.
func TestPersonalResumption(t *testing.T) {
	t.Parallel()
	r := newPersonalRig(t, 2, func(c *Config) { c.settled = 100 * time.Millisecond })
	ada := r.user("ada")
	before, err := r.admin.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 1})
	r.must(err)
	r.grant("ada", "a")
	r.sees(ada, 1)
	r.settled(0, ada)
	if r.resumes(0, ada, before.ResourceVersion) {
		t.Error("a watch resumes from before the first grant")
	}
	var later string
	r.until("another replica continues", func() bool {
		r.settled(1, ada)
		later = r.settled(0, ada)
		return r.resumes(1, ada, later)
	})
	r.grant("ada", "ab")
	r.until("the namespace is in lists", func() bool {
		return strings.HasPrefix(r.get(1, ada, anyState).header.Get(PersonalHeader), "2/")
	})
	if r.resumes(1, ada, later) {
		t.Error("a watch resumes from before a grant: it would lack the namespace")
	}
	r.settled(1, ada)
	if r.resumes(1, ada, later) {
		t.Error("a watch resumes from before a grant")
	}
}

// A service account continues its watch at another replica with a new token, although more has been written since.
func TestPersonalServiceAccountMoves(t *testing.T) {
	t.Parallel()
	r := newPersonalRig(t, 2, func(c *Config) { c.settled = 5 * time.Millisecond })
	defer r.moving()()
	ada := r.user("ada")
	r.grant("ada", "a")
	r.sees(ada, 1)
	r.until("another replica continues", func() bool {
		revision := r.get(0, ada, configMaps).list.Metadata.ResourceVersion
		for range 2 {
			r.write("moving", "m", fmt.Sprint(time.Now().UnixNano()))
		}
		token, err := r.admin.CoreV1().ServiceAccounts("default").CreateToken(r.Context(), "ada",
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		r.must(err)
		return r.resumes(1, token.Status.Token, revision)
	})
}

// Who may list in a namespace and not watch it has its objects in lists, and not in watches. One that continues such a
// list begins with their deletions: a right in one namespace ends no watch of the others.
func TestPersonalListWithoutWatch(t *testing.T) {
	t.Parallel()
	r := newPersonalRig(t, 1, func(c *Config) { c.settled = 100 * time.Millisecond })
	ada := r.user("ada")
	r.grant("ada", "a")
	r.grant("ada", "b", "get", "list")
	r.sees(ada, 2)
	r.want(r.get(0, ada, configMaps), "", "a", "b")
	code, events := 0, (chan change)(nil)
	r.until("a watch continues a list", func() bool {
		r.write("moving", "m", fmt.Sprint(time.Now().UnixNano())) // revisions move on
		revision := r.get(0, ada, configMaps).list.Metadata.ResourceVersion
		code, events = r.watch(0, ada, "resourceVersion="+revision)
		c := <-events
		for c.Object.Name == authority {
			c = <-events
		}
		return code != http.StatusOK || c.Type == "DELETED" && c.name() == "b/m0"
	})
	if code != http.StatusOK {
		t.Fatalf("a watch that continues the list: %d", code)
	}
	r.expect(events, "DELETED", "b/m1", "b/m2")
	r.write("b", "m0", "1")
	r.write("a", "m0", "1")
	r.expect(events, "MODIFIED", "a/m0")
	_, events = r.watch(0, ada, "")
	r.expect(events, "ADDED", mapsOf("a")...)
	r.write("b", "m0", "2")
	r.write("a", "m0", "2")
	r.expect(events, "MODIFIED", "a/m0")
}

// A namespace that was deleted, and made anew by somebody else, is not in the view.
func TestPersonalNamespaceMadeAnew(t *testing.T) {
	t.Parallel()
	r := newPersonalRig(t, 1, func(*Config) {})
	ada := r.user("ada")
	r.grant("ada", "a")
	r.grant("ada", "b")
	r.sees(ada, 2)
	_, events := r.watch(0, ada, "")
	r.expect(events, "ADDED", append(mapsOf("a"), mapsOf("b")...)...)
	r.must(r.admin.CoreV1().Namespaces().Delete(t.Context(), "b", metav1.DeleteOptions{}))
	r.expect(events, "DELETED", mapsOf("b")...)
	r.until("the namespace is gone", func() bool {
		_, err := r.admin.CoreV1().Namespaces().Get(t.Context(), "b", metav1.GetOptions{})
		return err != nil
	})
	r.namespace("b")
	own := rest.AnonymousClientConfig(r.server)
	own.BearerToken = ada
	hers, err := kubernetes.NewForConfig(own)
	r.must(err)
	r.until("the server refuses the namespace made anew: its authorizer has seen the end of the grant", func() bool {
		_, err := hers.CoreV1().ConfigMaps("b").List(t.Context(), metav1.ListOptions{})
		return apierrors.IsForbidden(err)
	})
	r.until("the proxy follows the end of the grant", func() bool {
		return strings.HasPrefix(r.get(0, ada, anyState).header.Get(PersonalHeader), "1/")
	})
	await.NoError(t, "the namespace takes objects: the server's admission has seen the new one", func() error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m0", Labels: map[string]string{"l": "0"}}}
		_, err := r.admin.CoreV1().ConfigMaps("b").Create(t.Context(), m, metav1.CreateOptions{})
		return err
	})
	r.write("a", "m0", "1")
	r.expect(events, "MODIFIED", "a/m0")
	r.want(r.get(0, ada, configMaps), "", "a")
}

// A personal Table has the rows of the namespaces that the user may read, as the server prints them one by one.
func TestPersonalTables(t *testing.T) {
	t.Parallel()
	r := newPersonalRig(t, 1, func(*Config) {})
	definitions, err := apiextensions.NewForConfig(r.server)
	r.must(err)
	_, err = definitions.CustomResourceDefinitions().Create(t.Context(), widgetDefinition(), metav1.CreateOptions{})
	r.must(err)
	client, err := dynamic.NewForConfig(r.server)
	r.must(err)
	await.NoError(t, "widgets are served", func() error {
		_, err := client.Resource(widgetsResource).List(t.Context(), metav1.ListOptions{})
		return err
	})
	ada := r.user("ada")
	for _, namespace := range inhabited {
		for i := range 2 {
			_, err := client.Resource(widgetsResource).Namespace(namespace).Create(t.Context(), newWidget(fmt.Sprint("w", i),
				"red"), metav1.CreateOptions{})
			r.must(err)
		}
		if namespace == "ab" {
			continue
		}
		r.grant("ada", namespace)
		_, err := r.admin.RbacV1().Roles(namespace).Patch(t.Context(), "ada", types.JSONPatchType,
			[]byte(`[{"op":"add","path":"/rules/-","value":{"apiGroups":["example.com"],"resources":["widgets"],"verbs":["list","watch"]}}]`), metav1.PatchOptions{})
		r.must(err)
	}
	rows := func(address, token, path string) string {
		response := r.request(t.Context(), address, token, path, "Accept", tables.Media)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		r.must(err)
		_, rest, _ := strings.Cut(string(body), `"rows":[`)
		return strings.TrimSuffix(rest, "]}\n")
	}
	direct, err := rest.TransportFor(r.server)
	r.must(err)
	between := httptest.NewServer(&httputil.ReverseProxy{Transport: direct, Rewrite: func(q *httputil.ProxyRequest) {
		to, _ := url.Parse(r.server.Host)
		q.SetURL(to)
		q.Out.Header.Del("Authorization")
	}})
	defer between.Close()
	await.State(t, "the Table has the rows of the namespaces", func() (bool, string) {
		var all []string
		for _, namespace := range []string{"a-b", "a", "b"} { // in the order of keys
			all = append(all, rows(between.URL, "", "/apis/example.com/v1/namespaces/"+namespace+"/widgets"))
		}
		got, want := rows(r.replicas[0].serve.URL, ada, "/apis/example.com/v1/widgets"), strings.Join(all, ",")
		return withoutAges(got) == withoutAges(want) && strings.Count(got, `{"cells":`) == 6, got + "\n" + want
	})
}
