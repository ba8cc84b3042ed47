package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/testserver"
)

var (
	pastRequests = flag.Int("past.requests", 0,
		"random reads of TestPastAuthority; 0 is 100 with -short, and 2000 without")
	pastSeed = flag.Uint64("past.seed", 0, "the seed of a run that printed it; 0 draws one")
)

// authorizedPast is a history of which a cluster decides who may read what.
type authorizedPast struct {
	*testing.T
	client *kubernetes.Clientset // of the cluster's administrator
	host   string
	base   http.RoundTripper
	tokens map[string]string // by the service accounts' names
}

func create[T any](t *testing.T, create func(context.Context, *T, metav1.CreateOptions) (*T, error), o *T) *T {
	t.Helper()
	created, err := create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// bind lets service accounts of kube-system read configmaps in a namespace, or in all if it is empty.
func (p *authorizedPast) bind(namespace string, names ...string) {
	p.Helper()
	var subjects []rbacv1.Subject
	for _, name := range names {
		subjects = append(subjects, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "kube-system", Name: name})
	}
	role := rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "map-reader"}
	meta := metav1.ObjectMeta{Name: "maps"}
	if namespace == "" {
		create(p.T, p.client.RbacV1().ClusterRoleBindings().Create, &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
			RoleRef: role, Subjects: subjects})
		return
	}
	create(p.T, p.client.RbacV1().RoleBindings(namespace).Create, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: role,
		Subjects: subjects})
}

// get reads as a service account, and returns the code. With open it returns the response, too.
func (p *authorizedPast) get(name, path string, header ...string) (*http.Response, int) {
	p.Helper()
	q, err := http.NewRequestWithContext(p.Context(), http.MethodGet, p.host+path, nil)
	if err != nil {
		p.Fatal(err)
	}
	if token := p.tokens[name]; token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	response, err := p.base.RoundTrip(q)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { response.Body.Close() })
	return response, response.StatusCode
}

// TestPastAuthority reads a history as users whom the live cluster knows.
func TestPastAuthority(t *testing.T) {
	parallel(t)
	srv := testserver.New(t, testserver.RBAC())
	p := &authorizedPast{T: t, client: kubernetes.NewForConfigOrDie(srv.Config()), tokens: map[string]string{"nobody": "",
		"wrong": "x.y.z"}}
	create(t, p.client.RbacV1().ClusterRoles().Create, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "map-reader"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get",
			"list", "watch"}}},
	})
	for _, name := range []string{"all", "one", "none"} {
		p.addUser(name)
	}
	for _, name := range []string{"left", "right", "gone", "lost"} {
		create(t, p.client.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		create(t, p.client.CoreV1().ConfigMaps(name).Create, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}})
	}
	p.bind("", "all")
	p.bind("left", "one")
	p.bind("gone", "one")
	kubeconfig := srv.Kubeconfig()
	file := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
	startProcess(t, "sync", "configmaps,services,deployments.apps,persistentvolumes", "-A", "--to", file, "--kubeconfig", kubeconfig).waitStderr(t,
		"synced at")
	last := create(t, p.client.CoreV1().ConfigMaps("left").Create,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "last"}})
	log, out := filepath.Join(t.TempDir(), "audit.log"), filepath.Join(t.TempDir(), "past")
	startProcess(t, "serve", "--history", file, "--listen", "127.0.0.1:0", "--kubeconfig-out", out, "--authorize",
		kubeconfig, "--audit-log", log).
		waitStderr(t, "at/MOMENT")
	config, err := clientcmd.BuildConfigFromFlags("", out)
	if err != nil || config.BearerToken != "" {
		t.Fatalf("the kubeconfig has the token %q, %v", config.BearerToken, err)
	}
	p.host = strings.TrimSuffix(config.Host, "/at/now")
	if p.base, err = rest.TransportFor(config); err != nil {
		t.Fatal(err)
	}
	at := "/at/revision/" + last.ResourceVersion
	stored(t, file, "cm/last", "left", last.ResourceVersion)

	const maps = "/configmaps"
	p.expect("at first", at, map[string]int{
		"all /api/v1" + maps: 200, "all /api/v1/namespaces/gone" + maps: 200, "all /api/v1/services": 403,
		"one /api/v1" + maps: 403, "one /api/v1/namespaces/left" + maps: 200,
		"one /api/v1/namespaces/right/configmaps/m": 403,
		"one /api/v1/namespaces/gone/configmaps/m":  200, "one /api/v1/namespaces/never" + maps: 403,
		"all /api/v1/namespaces/never" + maps: 200,
		"none /api/v1/namespaces/left" + maps: 403, "nobody /api/v1" + maps: 401, "wrong /api/v1" + maps: 401,
		"none /apis": 200, "nobody /apis": 401,
	})
	if _, code := p.get("all", at+"/api/v1/configmaps", "Impersonate-User", "root"); code != 403 {
		t.Errorf("an impersonation: %d", code)
	}
	if _, code := p.get("one", "/metrics"); code != 403 {
		t.Errorf("the metrics: %d", code)
	}
	watched := p.compare(at, srv.Config())
	p.page(file, last)

	// The cluster is asked again after some seconds.
	t.Run("later", func(t *testing.T) {
		for name, test := range map[string]func(p *authorizedPast, at string, last *corev1.ConfigMap){
			"another namespace": (*authorizedPast).anotherNamespace, "revoked": (*authorizedPast).revoked,
			"all revoked": func(p *authorizedPast, _ string, _ *corev1.ConfigMap) { p.revokeAll(watched) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				q := *p
				q.T = t
				test(&q, at, last)
			})
		}
	})
	p.checkLog(log)

	if code, _, stderr := execute(t, "serve", "--history", file, "--authorize", kubeconfig, "--token",
		"x"); code != exit.CodeUsage || !strings.Contains(stderr, "exclude each other") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// expect checks the codes of reads, by user and path.
func (p *authorizedPast) expect(what, at string, rows map[string]int) {
	p.Helper()
	for row, want := range rows {
		name, path, _ := strings.Cut(row, " ")
		if _, code := p.get(name, at+path); code != want {
			p.Errorf("%s: %s: %d, want %d", what, row, code, want)
		}
	}
}

// becomes waits until a read has a code.
func (p *authorizedPast) becomes(name, path string, want int) {
	p.Helper()
	await.State(p.T, fmt.Sprint(name, " ", path, ": ", want), func() (bool, string) {
		_, code := p.get(name, path)
		return code == want, fmt.Sprint(code)
	})
}

// anotherNamespace deletes a namespace. Then another one has its name.
func (p *authorizedPast) anotherNamespace(at string, last *corev1.ConfigMap) {
	if err := p.client.CoreV1().Namespaces().Delete(p.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		p.Fatal(err)
	}
	await.State(p.T, "the namespace is gone", func() (bool, string) {
		_, err := p.client.CoreV1().Namespaces().Get(p.Context(), "gone", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	p.becomes("one", at+"/api/v1/namespaces/gone/configmaps/m", 403)
	created := create(p.T, p.client.CoreV1().Namespaces().Create,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gone"}})
	p.bind("gone", "one")
	p.becomes("one", "/at/now/api/v1/namespaces/gone/configmaps", 200) // the new one is known
	if !created.CreationTimestamp.After(last.CreationTimestamp.Time) {
		p.Log("both namespaces were created in one second") // creationTimestamp has no fractions
		return
	}
	p.expect("another namespace", at, map[string]int{"one /api/v1/namespaces/gone/configmaps/m": 403,
		"all /api/v1/namespaces/gone/configmaps/m": 200})
}

// revoked revokes a right, which ends the watch.
func (p *authorizedPast) revoked(at string, _ *corev1.ConfigMap) {
	const left = "/api/v1/namespaces/left/configmaps"
	response, code := p.get("one", at+left+"?watch=true&speed=0")
	if code != 200 {
		p.Fatalf("the watch: %d", code)
	}
	if err := p.client.RbacV1().RoleBindings("left").Delete(p.Context(), "maps", metav1.DeleteOptions{}); err != nil {
		p.Fatal(err)
	}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
	}
	p.becomes("one", at+left, 403)
}

// page looks at the page of a history, with a timeline that begins with the revision of an object of the namespace
// left, and a change after that.
func (p *authorizedPast) page(file string, first *corev1.ConfigMap) {
	p.Helper()
	later := create(p.T, p.client.CoreV1().ConfigMaps("left").Create,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later"}})
	stored(p.T, file, "cm/later", "left", later.ResourceVersion)
	const form, left = "/keepwatch/", "/keepwatch/?type=configmaps&namespace=left"
	begin := "&from=revision/" + first.ResourceVersion
	change := begin + "&object=left/later&since=" + later.ResourceVersion + "&upto=" + later.ResourceVersion
	for row, want := range map[string]int{
		"all " + form: 200, "none " + form: 200, "nobody " + form: 401, "wrong " + form: 401, "nobody " + left + begin: 401,
		"all " + left + begin: 200, "one " + left + begin: 200, "one " + left + change: 200, "none " + left + begin: 403,
		"none " + left + change:           403,
		"one " + left + "&from=-3d":       403, // before the namespace was created
		"one " + left + begin + "&at=-3d": 410, "all " + left + "&from=-3d": 200,
		"one /keepwatch/?type=configmaps" + change: 403, "all /keepwatch/?type=configmaps" + change: 200,
		"all /keepwatch/?type=services" + begin:                          403,
		"one /at/now/keepwatch/?type=configmaps&namespace=right" + begin: 403, "one " + left + begin + "&name=later": 200,
		"one /keepwatch/?type=configmaps&namespace=never" + begin: 403, "none /keepwatch/?type=secrets": 404,
	} {
		name, path, _ := strings.Cut(row, " ")
		response, code := p.get(name, path)
		body, err := io.ReadAll(response.Body)
		if err != nil {
			p.Fatal(err)
		}
		if code != want || code != 200 && strings.Contains(string(body), "<svg") != (code == 410) || code == 403 &&
			strings.Contains(string(body), "ADDED") {
			p.Errorf("the page: %s: %d, want %d: %s", row, code, want, body)
		}
	}
}

// read is a random read.
type read struct {
	user       string
	attributes authorizationv1.ResourceAttributes
	path       string
}

// readTypes are the types of random reads, the last one without namespaces.
var readTypes = []struct{ group, resource, path string }{
	{"", "configmaps", "/api/v1"}, {"", "services", "/api/v1"}, {"apps", "deployments", "/apis/apps/v1"},
	{"", "persistentvolumes", "/api/v1"},
}

func randomRead(random *rand.Rand, users, namespaces []string) read {
	typ := readTypes[random.IntN(len(readTypes))]
	q := read{user: users[random.IntN(len(users))], path: typ.path}
	a := &q.attributes
	a.Group, a.Version, a.Resource, a.Verb = typ.group, "v1", typ.resource, []string{"get", "list",
		"watch"}[random.IntN(3)]
	if typ.resource != "persistentvolumes" && (a.Verb == "get" || random.IntN(4) > 0) {
		a.Namespace = namespaces[random.IntN(len(namespaces))]
		q.path += "/namespaces/" + a.Namespace
	}
	q.path += "/" + typ.resource
	query := url.Values{}
	if a.Verb == "get" || random.IntN(3) == 0 {
		a.Name = []string{"m", "other"}[random.IntN(2)]
	}
	switch {
	case a.Verb == "get":
		q.path += "/" + a.Name
	case a.Name != "": // as a read of the object
		query.Set("fieldSelector", "metadata.name="+a.Name)
	}
	if a.Verb == "watch" {
		query.Set("watch", "true")
	}
	q.path += "?" + query.Encode()
	return q
}

// grantAtRandom creates users with roles at random.
func (p *authorizedPast) grantAtRandom(random *rand.Rand, users, namespaces []string) {
	p.Helper()
	some := func(all ...string) (chosen []string) {
		for _, one := range all {
			if random.IntN(2) == 0 {
				chosen = append(chosen, one)
			}
		}
		return append(chosen, all[random.IntN(len(all))])
	}
	for i, user := range users {
		p.addUser(user)
		for k := range 1 + random.IntN(3) {
			meta := metav1.ObjectMeta{Name: fmt.Sprintf("random-%d-%d", i, k)}
			rule := rbacv1.PolicyRule{APIGroups: some("", "apps"), Verbs: some("get", "list", "watch"),
				Resources: some("configmaps", "services", "deployments", "persistentvolumes")}
			switch random.IntN(6) {
			case 0:
				rule.ResourceNames = []string{"m"}
			case 1:
				rule.Verbs, rule.Resources = []string{"*"}, []string{"*"}
			}
			create(p.T, p.client.RbacV1().ClusterRoles().Create, &rbacv1.ClusterRole{ObjectMeta: meta,
				Rules: []rbacv1.PolicyRule{rule}})
			of := rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: meta.Name}
			subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: user}}
			if random.IntN(3) == 0 {
				create(p.T, p.client.RbacV1().ClusterRoleBindings().Create, &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
					RoleRef: of, Subjects: subjects})
				continue
			}
			create(p.T, p.client.RbacV1().RoleBindings(namespaces[random.IntN(len(namespaces))]).Create,
				&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: of, Subjects: subjects})
		}
	}
}

// addUser creates a service account.
func (p *authorizedPast) addUser(name string) {
	p.Helper()
	accounts := p.client.CoreV1().ServiceAccounts("kube-system")
	create(p.T, accounts.Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
	token, err := accounts.CreateToken(p.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		p.Fatal(err)
	}
	p.tokens[name] = token.Status.Token
}

// allows asks the cluster.
func (p *authorizedPast) allows(q read, namespace string) bool {
	p.Helper()
	a := q.attributes
	a.Namespace = namespace
	review := create(p.T, p.client.AuthorizationV1().SubjectAccessReviews().Create, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:kube-system:" + q.user, ResourceAttributes: &a,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
		},
	})
	return review.Status.Allowed
}

// compare sends random reads of random users with random rights. Each is decided as the cluster decides, whose
// answer to the same request is the same; in a namespace that is gone also as for all namespaces. It returns watches
// that are allowed.
func (p *authorizedPast) compare(at string, live *rest.Config) (watched []read) {
	p.Helper()
	n, seed := cmp.Or(*pastRequests, inShort(100, 2000)), cmp.Or(*pastSeed, rand.Uint64())
	p.Logf("-past.requests %d -past.seed %d", n, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	namespaces := []string{"left", "right", "lost"}
	var users []string
	for i := range 20 {
		users = append(users, fmt.Sprintf("user-%d", i))
	}
	p.grantAtRandom(random, users, namespaces)
	if err := p.client.CoreV1().Namespaces().Delete(p.Context(), "lost", metav1.DeleteOptions{}); err != nil {
		p.Fatal(err)
	}
	await.State(p.T, "the namespace is gone", func() (bool, string) {
		_, err := p.client.CoreV1().Namespaces().Get(p.Context(), "lost", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(live))
	if err != nil {
		p.Fatal(err)
	}
	cluster := *p
	cluster.host, cluster.base = live.Host, transport
	seen := map[string]int{}
	for range n {
		q := randomRead(random, users, namespaces)
		allowed := p.allows(q, q.attributes.Namespace)
		if q.attributes.Namespace == "lost" {
			allowed = allowed && p.allows(q, "")
		} else if code := cluster.code(q.user, q.path); (code != 403) != allowed {
			p.Errorf("%s %s: the cluster answers %d, and allows it: %t", q.user, q.path, code, allowed)
		}
		if code := p.code(q.user, at+q.path); (code != 403) != allowed || code >= 500 {
			p.Errorf("%s %s: %d, and the cluster allows it: %t", q.user, q.path, code, allowed)
		}
		seen[fmt.Sprint(q.attributes.Verb, allowed)]++
		if allowed && q.attributes.Verb == "watch" && len(watched) < 40 {
			watched = append(watched, q)
		}
	}
	p.Logf("%v", seen)
	return watched
}

// revokeAll revokes the rights of the random users, which ends their watches.
func (p *authorizedPast) revokeAll(watched []read) {
	p.Helper()
	if len(watched) == 0 {
		p.Error("no replay is open")
	}
	var open []*http.Response
	for _, q := range watched {
		response, code := p.get(q.user, "/at/now"+q.path) // each type is known there
		if code != 200 {
			p.Errorf("%s %s: %d", q.user, q.path, code)
		}
		open = append(open, response)
	}
	random := metav1.ListOptions{FieldSelector: "metadata.name!=maps"}
	for _, namespace := range []string{"left", "right"} {
		if err := p.client.RbacV1().RoleBindings(namespace).DeleteCollection(p.Context(), metav1.DeleteOptions{},
			random); err != nil {
			p.Fatal(err)
		}
	}
	bindings, err := p.client.RbacV1().ClusterRoleBindings().List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	for _, b := range bindings.Items {
		if strings.HasPrefix(b.Name, "random-") {
			if err := p.client.RbacV1().ClusterRoleBindings().Delete(p.Context(), b.Name, metav1.DeleteOptions{}); err != nil {
				p.Fatal(err)
			}
		}
	}
	for _, response := range open {
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			p.Error(err)
		}
	}
}

// code reads as a service account, and returns the code.
func (p *authorizedPast) code(name, path string) int {
	p.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, p.host+path, nil)
	if err != nil {
		p.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+p.tokens[name])
	response, err := p.base.RoundTrip(q)
	if err != nil {
		p.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// checkLog checks the lines of the reads.
func (p *authorizedPast) checkLog(file string) {
	p.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		p.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			p.Fatalf("%s: %v", line, err)
		}
		if e.ObjectRef != nil {
			seen[fmt.Sprint(e.User.Username, " ", e.Verb, " ", e.ObjectRef.Namespace, " ",
				e.Annotations["authorization.k8s.io/decision"])] = true
		}
		if e.ObjectRef != nil && e.Annotations["authorization.k8s.io/decision"] == "allow" && e.ResponseStatus == nil &&
			!strings.HasPrefix(e.Annotations["keepwatch.io/moment"], "revision=") {
			p.Errorf("no moment: %s", line)
		}
		if strings.Contains(line, "Bearer") || p.tokens["all"] != "" && strings.Contains(line, p.tokens["all"]) {
			p.Errorf("a token: %s", line)
		}
	}
	const user = "system:serviceaccount:kube-system:"
	for _, want := range []string{user + "all list gone allow", user + "one get gone allow", user + "one get gone forbid",
		user + "none list left forbid", user + "one watch left allow"} {
		if !seen[want] {
			p.Errorf("the log lacks %q", want)
		}
	}
}
