package proxy

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	permissionRequests = flag.Int("proxy.permission-requests", 1500,
		"how many random requests of random users to send to the proxy and to the server")
	permissionSeed = flag.Uint64("proxy.permission-seed", 1,
		"draw roles and requests as a run did that printed this seed; 0 draws anew")
)

// Whatever roles and bindings allow a user, the status of each request is the server's: also that of requests with
// forged headers and wrong credentials. Roles change in between.
func TestPermissionsAreTheServers(t *testing.T) {
	t.Parallel()
	seed := *permissionSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-proxy.permission-seed %d", seed)
	p := newPopulation(newRig(t), rand.New(rand.NewPCG(seed, 3)))
	rounds := max(5, *permissionRequests/2000)
	counts := map[int]int{}
	before := p.answered()
	for range 30 {
		p.changeRole()
	}
	for range rounds {
		for range 12 {
			p.changeRole()
		}
		for status, n := range p.compare(*permissionRequests / rounds) {
			counts[status] += n
		}
	}
	t.Logf("statuses: %v, answered from caches: %v", counts, p.answered()-before)
	if counts[http.StatusOK] < *permissionRequests/10 || counts[http.StatusForbidden] < *permissionRequests/10 ||
		p.answered()-before < float64(*permissionRequests)/20 {
		t.Errorf("the requests are not mixed enough: %v", counts)
	}
}

// population is users with random rights.
type population struct {
	*rig
	random *rand.Rand
	users  []peer.User
	names  []string // of the bindings: namespace/name, /name for cluster-wide ones
	serial int
}

var homes = []string{"default", "one", "two"}

func newPopulation(r *rig, random *rand.Rand) *population {
	p := &population{rig: r, random: random}
	p.define()
	p.fill()
	p.users = append(p.server.PlainUsers(), peer.User{Name: "system:serviceaccount:default:reader", Token: p.token})
	for _, home := range homes[1:] {
		_, err := p.admin.CoreV1().Namespaces().Create(p.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, metav1.CreateOptions{})
		p.must(err)
		for i := range 2 {
			name := fmt.Sprintf("account-%d", i)
			_, err := p.admin.CoreV1().ServiceAccounts(home).Create(p.Context(),
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			p.must(err)
			token, err := p.admin.CoreV1().ServiceAccounts(home).CreateToken(p.Context(), name, &authenticationv1.TokenRequest{},
				metav1.CreateOptions{})
			p.must(err)
			p.users = append(p.users, peer.User{Name: "system:serviceaccount:" + home + ":" + name, Token: token.Status.Token})
		}
	}
	p.waitCached(maps + "?resourceVersion=0")
	return p
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// some returns a random part of what there is, with at least one.
func some(r *rand.Rand, from ...string) []string {
	var out []string
	for _, s := range from {
		if r.IntN(3) == 0 {
			out = append(out, s)
		}
	}
	if out == nil {
		out = []string{pick(r, from...)}
	}
	return out
}

// rule is a random rule: of resources, subresources, named objects, or other paths.
func (p *population) rule(namespaced bool) rbacv1.PolicyRule {
	r := p.random
	if !namespaced && r.IntN(4) == 0 {
		return rbacv1.PolicyRule{Verbs: some(r, "get", "*"), NonResourceURLs: some(r, "/version", "/logs/*", "/healthz", "*")}
	}
	rule := rbacv1.PolicyRule{
		Verbs: some(r, "get", "list", "watch", "create", "delete", "impersonate", "*"), APIGroups: some(r, "", "example.com",
			"*"),
		Resources: some(r, "configmaps", "configmaps", "pods", "pods/log", "pods/status", "*/status", "widgets", "nodes",
			"namespaces", "secrets", "users", "groups", "*"),
	}
	if r.IntN(2) == 0 {
		rule.Verbs = []string{"get", "list", "watch"}
	}
	if r.IntN(4) == 0 {
		rule.ResourceNames = some(r, "map-001", "map-002", "object-07", "default", "user-1", "readers")
	}
	return rule
}

// subject is a user, a group or a service account.
func (p *population) subject() rbacv1.Subject {
	r := p.random
	switch r.IntN(4) {
	case 0:
		return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: pick(r, "readers", "writers",
			"watchers", "system:serviceaccounts", "system:serviceaccounts:one", "system:authenticated")}
	case 1:
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: pick(r, homes...), Name: pick(r, "account-0",
			"account-1", "reader")}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: pick(r, p.users...).Name}
}

// changeRole creates a role with a binding, or changes or deletes one.
func (p *population) changeRole() {
	p.Helper()
	r, rbac, ctx := p.random, p.admin.RbacV1(), p.Context()
	if len(p.names) > 20 && r.IntN(2) == 0 {
		i := r.IntN(len(p.names))
		home, name, _ := strings.Cut(p.names[i], "/")
		p.names = slices.Delete(p.names, i, i+1)
		if home == "" {
			p.must(rbac.ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}))
		} else {
			p.must(rbac.RoleBindings(home).Delete(ctx, name, metav1.DeleteOptions{}))
		}
		return
	}
	p.serial++
	home, meta := pick(r, append(homes, "")...), metav1.ObjectMeta{Name: fmt.Sprintf("random-%d", p.serial)}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}
	var err error
	if home == "" || r.IntN(2) == 0 {
		_, err = rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta,
			Rules: []rbacv1.PolicyRule{p.rule(home != ""), p.rule(home != "")}}, metav1.CreateOptions{})
	} else {
		ref.Kind = "Role"
		_, err = rbac.Roles(home).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{p.rule(true),
			p.rule(true)}}, metav1.CreateOptions{})
	}
	p.must(err)
	if home == "" {
		_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref,
			Subjects: []rbacv1.Subject{p.subject(), p.subject()}}, metav1.CreateOptions{})
	} else {
		_, err = rbac.RoleBindings(home).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref,
			Subjects: []rbacv1.Subject{p.subject(), p.subject()}}, metav1.CreateOptions{})
	}
	p.must(err)
	p.names = append(p.names, home+"/"+meta.Name)
}

// request is a read with the credentials of a user, right or wrong.
type request struct {
	method, path string
	header       []string
}

func (p *population) request() request {
	r := p.random
	user := pick(r, p.users...)
	q := request{method: http.MethodGet, path: p.path(), header: []string{"Authorization", "Bearer " + user.Token,
		"Accept", pick(r, inJSON, inJSON, inProtobuf, inJSON+asList, inJSON+asObject)}}
	if r.IntN(12) == 0 && !strings.Contains(q.path, "?") {
		q.method, q.path = http.MethodDelete, q.path+"?dryRun=All"
	}
	switch r.IntN(24) {
	case 0:
		q.header = append(q.header, "Impersonate-User", pick(r, p.users...).Name)
	case 1:
		q.header = append(q.header, "Impersonate-User", "user-1", "Impersonate-Group", pick(r, "readers", "system:masters"))
	case 2:
		q.header = append(q.header, "Impersonate-Group", "system:masters")
	case 3:
		q.header = append(q.header, "X-Remote-User", "admin", "X-Remote-Group", "system:masters", "X-Remote-Extra-Scopes",
			"all")
	case 4:
		q.header[1] = pick(r, "", "Bearer ", "Bearer wrong", "bearer "+user.Token, "Basic YTpi", "Bearer "+user.Token+" ",
			"Bearer "+user.Token+",Bearer "+pick(r, p.users...).Token, user.Token)
	case 5:
		q.header = append(q.header, "Impersonate-Uid", "x")
	}
	return q
}

// path is of a collection, an object, a subresource, or something else.
func (p *population) path() string {
	r := p.random
	if r.IntN(10) == 0 {
		return pick(r, "/version", "/healthz", "/openapi/v2", "/logs/x", "/apis", "/api/v1", "/nothing", "/api/v1/nodes",
			"/api/v1/namespaces", "/api/v1/namespaces/default", "/api/v1/nodes/none")
	}
	name := pick(r, "configmaps", "configmaps", "pods", "widgets", "secrets", "missing")
	path := "/api/v1"
	if name == "widgets" {
		path = "/apis/example.com/v1"
	}
	if r.IntN(4) > 0 {
		path += "/namespaces/" + pick(r, append(homes, "default", "missing")...)
	}
	path += "/" + name
	switch r.IntN(4) {
	case 0:
		path += "/" + pick(r, "map-001", "map-002", "object-07", "missing")
		if r.IntN(4) == 0 {
			return path + pick(r, "/status", "/log", "/scale", "/missing")
		}
		return path + pick(r, "", "?resourceVersion=0")
	case 1:
		return path
	}
	query := pick(r, "?resourceVersion=0", "?resourceVersion=0", "?resourceVersion=0&limit=1", "?",
		"?watch=1&timeoutSeconds=1&resourceVersion=0")
	selector := pick(r, "", "", "&labelSelector=half%3D1", "&fieldSelector=metadata.name%3Dmap-001",
		"&fieldSelector=metadata.name%3Dmissing", "&fieldSelector=metadata.namespace%3Done",
		"&fieldSelector=metadata.name%21%3Dmap-001",
		"&labelSelector=half+in+(0,1),none&fieldSelector=metadata.name%3Dmap-001", "&labelSelector=%28",
		"&fieldSelector=data%3D1")
	return path + query + selector
}

// status sends a request, and returns the status of the response.
func (p *population) status(client *http.Client, host string, q request) int {
	code, err := send(p.Context(), client, host, q)
	if err != nil {
		p.Errorf("%s %s: %v", q.method, q.path, err)
	}
	return code
}

// send sends a request, and returns the status of the response. A watch is ended after it.
func send(ctx context.Context, client *http.Client, host string, q request) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, await.Deadline)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, q.method, host+q.path, nil)
	if err != nil {
		return 0, err
	}
	for i := 0; i < len(q.header); i += 2 {
		if q.header[i+1] != "" {
			r.Header.Add(q.header[i], q.header[i+1])
		}
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return response.StatusCode, nil
}

// compare sends random requests to both sides, and counts the server's statuses. A request that follows a change of
// roles is sent again until both agree: each API server follows roles by itself, and the proxy asks again for some
// seconds. For how long the proxy allowed what the server already refused is logged.
func (p *population) compare(n int) map[int]int {
	p.Helper()
	var mu sync.Mutex
	counts := map[int]int{}
	late, latest := 0, time.Duration(0)
	defer func() { p.Logf("%d requests: %d were allowed after their revocation, for %v at most", n, late, latest) }()
	var group errgroup.Group
	group.SetLimit(16)
	for range n {
		q := p.request()
		group.Go(func() error {
			allowed := false
			for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
				got, want := p.status(p.proxied, p.url, q), p.status(p.direct, p.server.Config().Host, q)
				if got == want {
					mu.Lock()
					counts[want]++
					if allowed {
						late, latest = late+1, max(latest, time.Since(begun))
					}
					mu.Unlock()
					return nil
				}
				allowed = allowed || want == http.StatusForbidden && got < http.StatusBadRequest
				if time.Since(begun) > await.Deadline {
					p.Errorf("%s %s %q: %d, the server: %d", q.method, q.path, q.header, got, want)
					return nil
				}
			}
		})
	}
	p.must(group.Wait())
	return counts
}

// A revoked binding stops reads and ends open watches. How long that takes is logged: less than a second, on an idle
// machine.
func TestRevocationIsFast(t *testing.T) {
	r := newRig(t)
	r.create(3)
	bindings := r.admin.RbacV1().RoleBindings("default")
	reader, err := bindings.Get(t.Context(), "reader", metav1.GetOptions{})
	r.must(err)
	reader.ObjectMeta = metav1.ObjectMeta{Name: reader.Name}
	var watched, read []time.Duration // until the last watch has ended, and until a read is refused
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		time.Sleep(2 * time.Second) // while roles change again and again, watches are decided again once a second
		r.waitCached(maps + "?resourceVersion=0")
		var watches []*http.Response
		for range 50 {
			watch := r.watch(maps + "?watch=1&resourceVersion=0")
			defer watch.Body.Close()
			if watch.StatusCode != http.StatusOK {
				t.Fatalf("a watch before the revocation: %s", watch.Status)
			}
			watches = append(watches, watch)
		}
		reviews := r.reviews()
		r.must(bindings.Delete(t.Context(), reader.Name, metav1.DeleteOptions{}))
		begun := time.Now()
		type end struct {
			after time.Duration
			err   error
		}
		ended := make(chan end, len(watches))
		for _, watch := range watches {
			go func() {
				_, err := io.Copy(io.Discard, watch.Body)
				ended <- end{time.Since(begun), err}
			}()
		}
		r.eventually("a read is refused", func() bool {
			return r.proxy(maps+"?resourceVersion=0").code == http.StatusForbidden
		})
		read = append(read, time.Since(begun))
		var last time.Duration
		for range watches {
			one := <-ended
			r.must(one.err)
			last = max(last, one.after)
		}
		watched = append(watched, last)
		// on a machine that is busy, for longer: each second once about reads, and about watches, with a confirmation
		if n := r.reviews() - reviews; n > 10+4*time.Since(begun).Seconds() {
			t.Errorf("the proxy asked %v times about the watches of one user", n)
		}
		_, err := bindings.Create(t.Context(), reader, metav1.CreateOptions{})
		r.must(err)
	}
	slices.Sort(watched)
	slices.Sort(read)
	for what, took := range map[string][]time.Duration{"50 watches ended": watched, "a read was refused": read} {
		t.Logf("%s %d ms after the binding at p50, %d ms at most", what, took[len(took)/2].Milliseconds(),
			took[len(took)-1].Milliseconds())
	}
}

// The token of a deleted service account is refused once its last review is no longer used, as by the server. Its watch
// ends when the token is reviewed again.
func TestDeletedAccounts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(1)
	r.waitCached(maps + "?resourceVersion=0")
	watch := r.watch(maps + "?watch=1&resourceVersion=0&timeoutSeconds=100000000")
	defer watch.Body.Close()
	if watch.StatusCode != http.StatusOK {
		t.Fatalf("a watch before the deletion: %s", watch.Status)
	}
	r.must(r.admin.CoreV1().ServiceAccounts("default").Delete(t.Context(), "reader", metav1.DeleteOptions{}))
	r.eventually("the server refuses the token", func() bool { return r.behind(maps).code == http.StatusUnauthorized })
	r.eventually("the proxy refuses the token", func() bool {
		return r.proxy(maps+"?resourceVersion=0").code == http.StatusUnauthorized
	})
	if _, err := io.Copy(io.Discard, watch.Body); err != nil {
		t.Errorf("the watch: %v", err)
	}
}

// reviews returns how many access reviews the server has answered.
func (r *rig) reviews() float64 {
	r.Helper()
	m, err := r.server.Metrics(r.Context())
	r.must(err)
	return m.Sum("apiserver_request_total", peer.Labels{"resource": "subjectaccessreviews"})
}
