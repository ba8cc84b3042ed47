// Package proxy tests package proxy in front of a real kube-apiserver.
package proxy

import (
	"context"
	"io"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// rig is a kube-apiserver, a proxy in front of it, and a user of both.
type rig struct {
	*front
	server  *peer.Server
	admin   kubernetes.Interface
	url     string // of the proxy
	host    string // what the proxy's answers are compared with: the server's address
	direct  *http.Client
	proxied *http.Client
	token   string // of the service account default/reader
}

// newRig starts a rig whose proxy has a configuration that the edits have changed.
func newRig(t testing.TB, edits ...func(*rig, *proxy.Config)) *rig {
	return newRigOn(t, peer.Kubernetes(t), edits...)
}

// newRigOn is newRig in front of a server that runs already.
func newRigOn(t testing.TB, server *peer.Server, edits ...func(*rig, *proxy.Config)) *rig {
	r := &rig{front: &front{TB: t}, server: server, host: server.Config().Host}
	var err error
	if r.admin, err = kubernetes.NewForConfig(r.server.Config()); err != nil {
		t.Fatal(err)
	}
	config := proxy.Config{Server: r.server.Config()}
	for _, edit := range edits {
		edit(r, &config)
	}
	r.front = newFront(t, config)
	r.url, r.proxied = r.front.server.URL, r.front.server.Client()
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(r.server.Config()))
	if err != nil {
		t.Fatal(err)
	}
	r.direct = &http.Client{Transport: transport}
	r.bind("reader", "get", "list", "watch")
	return r
}

// bind creates a service account and a role in the namespace default, and gets a token for it.
func (r *rig) bind(name string, verbs ...string) {
	r.Helper()
	ctx, meta := r.Context(), metav1.ObjectMeta{Name: name, Namespace: "default"}
	_, err := r.admin.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta},
		metav1.CreateOptions{})
	r.must(err)
	_, err = r.admin.RbacV1().Roles("default").Create(ctx, &rbacv1.Role{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: []string{""}, Resources: []string{"configmaps",
			"pods"}}},
	}, metav1.CreateOptions{})
	r.must(err)
	_, err = r.admin.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: "default"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	r.must(err)
	token, err := r.admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	r.must(err)
	r.token = token.Status.Token
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// answer is a response.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (r *rig) do(client *http.Client, host, path string, header ...string) answer {
	r.Helper()
	response := r.open(r.Context(), client, host, path, header...)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	r.must(err)
	return answer{response.StatusCode, response.Header, string(body)}
}

// open begins a request. The test closes its body.
func (r *rig) open(ctx context.Context, client *http.Client, host, path string, header ...string) *http.Response {
	r.Helper()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, host+path, nil)
	r.must(err)
	q.Header.Set("Authorization", "Bearer "+r.token)
	q.Header.Set("Accept", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Del(header[i])
		if header[i+1] != "" {
			q.Header.Set(header[i], header[i+1])
		}
	}
	response, err := client.Do(q)
	r.must(err)
	return response
}

func (r *rig) behind(path string, header ...string) answer {
	r.Helper()
	return r.do(r.direct, r.host, path, header...)
}

func (r *rig) proxy(path string, header ...string) answer {
	r.Helper()
	return r.do(r.proxied, r.url, path, header...)
}

// waitCached waits until a path is answered from a cache.
func (r *rig) waitCached(path string) {
	r.Helper()
	before := r.answered()
	r.eventually(path+" is answered from a cache", func() bool {
		r.proxy(path)
		return r.answered() > before
	})
}

// watch opens a watch that memory answers: one about which a busy server does not decide in time is forwarded. The test
// closes its body.
func (r *rig) watch(path string, header ...string) (opened *http.Response) {
	r.Helper()
	r.eventually(path+" is answered from memory", func() bool {
		before := r.answered()
		opened = r.open(r.Context(), r.proxied, r.url, path, header...)
		if r.answered() > before {
			return true
		}
		opened.Body.Close()
		return false
	})
	return opened
}

// eventually waits until something is true.
func (r *rig) eventually(what string, is func() bool) {
	r.Helper()
	await.True(r.TB, what, is)
}
