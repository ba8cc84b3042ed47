package passthrough

import (
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/test/peer"
)

// A stream has the rights of its client: by a token, by a certificate, and through a second proxy. The server words
// refusals.
func testIdentities(t *testing.T, c *cluster) {
	c.run(t, "shared", nil)
	c.allowExec(t, "allowed", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "allowed"},
		rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "ada"})
	second := peer.Proxy(t, c.proxy)
	for name, kubeconfig := range map[string]func(at *peer.Server) string{
		"a token":       func(at *peer.Server) string { return c.withToken(t, at, "allowed") },
		"a certificate": func(at *peer.Server) string { return c.withCertificate(t, at, "ada") },
		"two proxies": func(at *peer.Server) string {
			if at == c.server {
				return at.Kubeconfig()
			}
			return second.Kubeconfig()
		},
		"refused":            func(at *peer.Server) string { return c.withToken(t, at, "refused") },
		"refused, certified": func(at *peer.Server) string { return c.withCertificate(t, at, "eve") },
	} {
		t.Run(name, func(t *testing.T) {
			run := func(at *peer.Server, p protocol) result {
				return c.session(t, kubeconfig(at), p).kubectl(nil, "exec", "shared", "--", "echo", "done")
			}
			want := run(c.server, webSocket)
			if refused := strings.Contains(want.stderr, "forbidden"); refused != (want.stdout != "done\n") ||
				refused != (strings.Contains(name, "refused")) {
				t.Errorf("at the server: %+v", want)
			}
			for _, p := range protocols {
				if got := run(c.proxy, p); got != want {
					t.Errorf("%s: %+v\nat the server: %+v", p, got, want)
				}
			}
		})
	}
}

// allowExec lets users get pods and run commands in them.
func (c *cluster) allowExec(t *testing.T, name string, users ...rbacv1.Subject) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name, Namespace: "default"}
	_, err := c.admin.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}},
			{Verbs: []string{"get", "create"}, APIGroups: []string{""}, Resources: []string{"pods/exec"}},
		}}, metav1.CreateOptions{})
	c.must(err)
	_, err = c.admin.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: users,
	}, metav1.CreateOptions{})
	c.must(err)
}

// withToken returns a kubeconfig with the token of a service account, which it creates.
func (c *cluster) withToken(t *testing.T, at *peer.Server, account string) string {
	t.Helper()
	accounts := c.admin.CoreV1().ServiceAccounts("default")
	_, err := accounts.Get(t.Context(), account, metav1.GetOptions{})
	if err != nil {
		_, err = accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}},
			metav1.CreateOptions{})
	}
	c.must(err)
	token, err := accounts.CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	c.must(err)
	config := rest.AnonymousClientConfig(at.Config())
	config.BearerToken = token.Status.Token
	return c.write(t, config)
}

// withCertificate returns a kubeconfig with a client certificate of a user.
func (c *cluster) withCertificate(t *testing.T, at *peer.Server, user string) string {
	t.Helper()
	config := rest.AnonymousClientConfig(at.Config())
	config.CertFile, config.KeyFile = c.users.ClientFiles(user, nil)
	return c.write(t, config)
}

func (c *cluster) write(t *testing.T, config *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	c.must(peer.WriteKubeconfig(file, config))
	return file
}
