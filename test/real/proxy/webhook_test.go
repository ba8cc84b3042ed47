package proxy

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/test/peer"
)

// policy is a webhook authorizer. It allows every third of the requests that RBAC does not allow, by the digest of the
// request, its selectors included.
type policy struct {
	seed    uint64
	asked   atomic.Int64
	revoked atomic.Bool // the reader may do nothing, and otherwise everything
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

const readerUser = "system:serviceaccount:default:reader"

func (p *policy) decide(review *authorizationv1.SubjectAccessReview) {
	spec := review.Spec
	if spec.User == readerUser {
		review.Status.Allowed = !p.revoked.Load()
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
	return peer.Kubernetes(t, "--authorization-mode", "Webhook", "--authorization-webhook-config-file", config, "--authorization-webhook-version", "v1",
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
	t.Logf("statuses: %v, answered from caches: %v, the webhook was asked %d times", counts, p.answered()-before, policy.asked.Load())
	if n := *permissionRequests / 3; counts[http.StatusOK] < n/10 || counts[http.StatusForbidden] < n/10 || p.answered() == before {
		t.Errorf("the requests are not mixed enough: %v", counts)
	}
}

// The proxy does not see that a webhook has revoked a right, and decides anew when a role changes. That ends an open watch.
func TestRevocationByAWebhook(t *testing.T) {
	policy := &policy{}
	r := newRigOn(t, serverWithWebhook(t, policy))
	r.must(r.admin.RbacV1().RoleBindings("default").Delete(t.Context(), "reader", metav1.DeleteOptions{}))
	r.create(3)
	r.waitCached(maps + "?resourceVersion=0")
	watch := r.open(t.Context(), r.proxied, r.url, maps+"?watch=1&resourceVersion=0")
	defer watch.Body.Close()
	if watch.StatusCode != http.StatusOK {
		t.Fatalf("a watch before the revocation: %d", watch.StatusCode)
	}
	policy.revoked.Store(true)
	r.eventually("the server refuses", func() bool { return r.behind(maps).code == http.StatusForbidden })
	_, err := r.admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "changed"}}, metav1.CreateOptions{})
	r.must(err)
	if _, err := io.Copy(io.Discard, watch.Body); err != nil {
		t.Error(err)
	}
	r.eventually("the proxy refuses", func() bool { return r.proxy(maps+"?resourceVersion=0").code == http.StatusForbidden })
}
