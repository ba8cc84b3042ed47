package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy"
	"github.com/keepwatch/keepwatch/test/peer"
)

// policy is a webhook authorizer. It allows every third of the requests that RBAC does not allow, by the digest of the
// request, its selectors included.
type policy struct {
	seed    uint64
	asked   atomic.Int64
	revoked atomic.Bool // the reader may do nothing, and otherwise everything
	shown   sync.Map    // the namespaces in which the viewer may read config maps, beside which it may do nothing
	// reads is who else may read config maps where, and then all that the policy allows; it may be nil.
	reads func(user, namespace string) bool
}

func (p *policy) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(q.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.asked.Add(1)
	p.decide(&review)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&review)
}

const (
	readerUser = "system:serviceaccount:default:reader"
	viewerUser = "system:serviceaccount:default:viewer"
)

func (p *policy) decide(review *authorizationv1.SubjectAccessReview) {
	spec := review.Spec
	if spec.User == readerUser {
		review.Status.Allowed = !p.revoked.Load()
		return
	}
	if spec.User == viewerUser {
		if a := spec.ResourceAttributes; a != nil && a.Resource == "configmaps" && a.Namespace != "" {
			_, review.Status.Allowed = p.shown.Load(a.Namespace)
		}
		return
	}
	if p.reads != nil {
		a := spec.ResourceAttributes
		review.Status.Allowed = a != nil && a.Resource == "configmaps" && p.reads(spec.User, a.Namespace)
		return
	}
	request, err := json.Marshal([]any{spec.User, spec.ResourceAttributes, spec.NonResourceAttributes})
	if err != nil {
		return
	}
	digest := fnv.New64a()
	fmt.Fprint(digest, p.seed, string(request))
	switch digest.Sum64() % 3 {
	case 0:
		review.Status.Allowed = true
	case 1:
		review.Status.Denied = true
	}
}

// serverWithWebhook starts a kube-apiserver that asks a policy after RBAC.
func serverWithWebhook(t *testing.T, p *policy) *peer.Server {
	webhook := httptest.NewServer(p)
	t.Cleanup(webhook.Close)
	config := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	if err := peer.WriteKubeconfig(config, &rest.Config{Host: webhook.URL}); err != nil {
		t.Fatal(err)
	}
	return peer.Kubernetes(t, "--authorization-mode", "Webhook", "--authorization-webhook-config-file", config,
		"--authorization-webhook-version", "v1",
		"--authorization-webhook-cache-authorized-ttl", "1s", "--authorization-webhook-cache-unauthorized-ttl", "1s")
}

// With a webhook authorizer that looks at everything of a request, the status of each request is the server's.
func TestPermissionsOfAWebhook(t *testing.T) {
	t.Parallel()
	seed := *permissionSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-proxy.permission-seed %d", seed)
	policy := &policy{seed: seed}
	p := newPopulation(newRigOn(t, serverWithWebhook(t, policy)), rand.New(rand.NewPCG(seed, 5)))
	for range 30 {
		p.changeRole()
	}
	before := p.answered()
	counts := p.compare(*permissionRequests / 3)
	t.Logf("statuses: %v, answered from caches: %v, the webhook was asked %d times", counts, p.answered()-before,
		policy.asked.Load())
	if n := *permissionRequests / 3; counts[http.StatusOK] < n/10 || counts[http.StatusForbidden] < n/10 ||
		p.answered() == before {
		t.Errorf("the requests are not mixed enough: %v", counts)
	}
}

// The proxy does not see that a webhook has revoked a right, and decides anew when a role changes. That ends an open
// watch.
func TestRevocationByAWebhook(t *testing.T) {
	policy := &policy{}
	r := newRigOn(t, serverWithWebhook(t, policy))
	r.must(r.admin.RbacV1().RoleBindings("default").Delete(t.Context(), "reader", metav1.DeleteOptions{}))
	r.create(3)
	r.waitCached(maps + "?resourceVersion=0")
	watch := r.watch(maps + "?watch=1&resourceVersion=0")
	defer watch.Body.Close()
	if watch.StatusCode != http.StatusOK {
		t.Fatalf("a watch before the revocation: %d", watch.StatusCode)
	}
	policy.revoked.Store(true)
	r.eventually("the server refuses", func() bool { return r.behind(maps).code == http.StatusForbidden })
	_, err := r.admin.RbacV1().ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "changed"}}, metav1.CreateOptions{})
	r.must(err)
	if _, err := io.Copy(io.Discard, watch.Body); err != nil {
		t.Error(err)
	}
	r.eventually("the proxy refuses", func() bool {
		return r.proxy(maps+"?resourceVersion=0").code == http.StatusForbidden
	})
}

// A webhook that gives no reasons decides what a personal view has. A change of it is noticed, at the latest, when a
// binding of the user changes.
func TestPersonalViewOfAWebhook(t *testing.T) {
	t.Parallel()
	policy := &policy{}
	r := newRigOn(t, serverWithWebhook(t, policy), func(_ *rig, c *proxy.Config) { c.Personal = &proxy.Personal{} })
	for _, name := range []string{"a", "a-b", "ab", "b"} {
		_, err := r.admin.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		r.must(err)
		_, err = r.admin.CoreV1().ConfigMaps(name).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{})
		r.must(err)
	}
	accounts := r.admin.CoreV1().ServiceAccounts("default")
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}},
		metav1.CreateOptions{})
	r.must(err)
	token, err := accounts.CreateToken(t.Context(), "viewer", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	r.must(err)
	config := r.front.Config()
	config.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(config)
	r.must(err)
	policy.shown.Store("a", true)
	policy.shown.Store("b", true)
	await.NoError(t, "the proxy follows namespaces", func() error { // it has not seen that the webhook allows anything
		_, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		return err
	})

	informer := informers.NewConfigMapInformer(client, "", 0, cache.Indexers{})
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(x any) {
		if m := x.(*corev1.ConfigMap); m.Namespace != "a" && m.Namespace != "b" && m.Namespace != "a-b" {
			t.Errorf("%s/%s arrives", m.Namespace, m.Name)
		}
	}})
	r.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	defer running.Wait()
	defer cancel()
	has := func(want ...string) {
		t.Helper()
		await.State(t, fmt.Sprintf("the informer has what the webhook allows in %v", want), func() (bool, string) {
			var got []string
			for _, x := range informer.GetStore().List() {
				got = append(got, x.(*corev1.ConfigMap).Namespace)
			}
			slices.Sort(got)
			return slices.Equal(got, want), fmt.Sprint(got)
		})
	}
	direct := rest.AnonymousClientConfig(r.server.Config())
	direct.BearerToken = token.Status.Token
	behind, err := kubernetes.NewForConfig(direct)
	r.must(err)
	// changes lets the server decide again about a namespace. Then it changes a binding of the user that grants
	// nothing: the proxy receives that change, and asks the server.
	changes := func(namespace string, allowed bool) {
		t.Helper()
		await.True(t, "the server decides as the webhook does", func() bool {
			_, err := behind.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
			return (err == nil) == allowed
		})
		_, err := r.admin.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "nothing-"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind,
				Namespace: "default", Name: "viewer"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "nothing"},
		}, metav1.CreateOptions{})
		r.must(err)
	}
	has("a", "b")
	policy.shown.Store("a-b", true)
	changes("a-b", true)
	has("a", "a-b", "b")
	policy.shown.Delete("b")
	changes("b", false)
	has("a", "a-b")
}
