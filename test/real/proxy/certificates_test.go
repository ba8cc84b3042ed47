package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/proxy"
	"github.com/keepwatch/keepwatch/test/peer"
)

// office is a kube-apiserver with authorities of clients and of front proxies, and the command keepwatch proxy in front
// of it, whose identity has the rights that --print-rbac prints and no others.
type office struct {
	*rig                           // without a proxy of its own
	clients, frontProxies, others  *peer.Authority
	clientsFile                    string
	accepting, refusing            *peer.Server
	ada, bob, carol, administrator *tls.Certificate
}

func newOffice(t *testing.T) *office {
	o := &office{rig: &rig{front: &front{TB: t}}, clients: peer.NewAuthority(t, "clients"),
		frontProxies: peer.NewAuthority(t, "front proxies"), others: peer.NewAuthority(t, "others")}
	o.clientsFile = o.clients.File()
	o.rig.server = peer.Kubernetes(t, "--client-ca-file", o.clientsFile, "--requestheader-client-ca-file",
		o.frontProxies.File(), "--requestheader-allowed-names", "front",
		"--requestheader-username-headers", "X-Remote-User", "--requestheader-group-headers", "X-Remote-Group",
		"--requestheader-extra-headers-prefix", "X-Remote-Extra-")
	var err error
	o.admin, err = kubernetes.NewForConfig(o.rig.server.Config())
	o.must(err)
	o.bind("reader", "get", "list", "watch")
	o.grant()
	o.create(5)
	kubeconfig := o.identity()
	flags := []string{"--kubeconfig", kubeconfig, "--cache", "configmaps,namespaces", "--cache", "pods"}
	o.accepting = peer.Proxy(t, o.rig.server, append(flags, "--impersonate")...)
	o.refusing = peer.Proxy(t, o.rig.server, flags...)
	o.ada, o.bob = o.clients.Client("ada", []string{"devs", "staff"}), o.clients.Client("bob", nil)
	o.carol = o.clients.Client("carol", nil)
	o.administrator = o.clients.Client("root", []string{"system:masters"})
	o.eventually("the proxy knows the authorities", func() bool {
		return o.as(o.accepting, o.administrator, "/metrics").code == http.StatusOK
	})
	o.eventually("config maps are cached", func() bool {
		o.as(o.accepting, o.ada, maps+"?resourceVersion=0")
		return o.cached() > 0
	})
	return o
}

// expired and forServers are edits of client certificates.
func expired(c *x509.Certificate)    { c.NotAfter = time.Now().Add(-time.Minute) }
func forServers(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }

// grant binds the roles of the clients: devs read config maps, and carol may impersonate bob in some groups.
func (o *office) grant() {
	o.Helper()
	ctx, rbac := o.Context(), o.admin.RbacV1()
	_, err := rbac.RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "devs"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role",
			Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "devs"}},
	}, metav1.CreateOptions{})
	o.must(err)
	_, err = rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "acting"},
		Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"users"},
				ResourceNames: []string{"bob"}},
			{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"groups"},
				ResourceNames: []string{"devs"}},
			{Verbs: []string{"impersonate"}, APIGroups: []string{"authentication.k8s.io"},
				Resources: []string{"userextras/scopes"}, ResourceNames: []string{"view"}},
		}}, metav1.CreateOptions{})
	o.must(err)
	_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "acting"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName,
			Kind: "ClusterRole", Name: "acting"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "carol"}},
	}, metav1.CreateOptions{})
	o.must(err)
}

// identity returns a kubeconfig of a service account with the rights of a proxy.
func (o *office) identity() (kubeconfig string) {
	o.Helper()
	ctx, meta := o.Context(), metav1.ObjectMeta{Name: "keepwatch-proxy"}
	role := proxy.ClusterRole(meta.Name, proxy.Selection{}, []schema.GroupResource{{Resource: "configmaps"},
		{Resource: "namespaces"}, {Resource: "pods"}})
	role.Rules = append(role.Rules, proxy.ImpersonationRules()...)
	_, err := o.admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	o.must(err)
	_, err = o.admin.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta},
		metav1.CreateOptions{})
	o.must(err)
	_, err = o.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: meta.Name}},
	}, metav1.CreateOptions{})
	o.must(err)
	token, err := o.admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, meta.Name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	o.must(err)
	config := o.rig.server.Config()
	config.BearerToken = token.Status.Token
	kubeconfig = filepath.Join(o.TempDir(), "proxy.kubeconfig")
	o.must(peer.WriteKubeconfig(kubeconfig, config))
	return kubeconfig
}

// review asks a server who the caller is.
const review = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews"

// as sends a request with a certificate, nil for none, whatever authorities the server names. target is a path, or a
// method and a path.
func (o *office) as(to *peer.Server, certificate *tls.Certificate, target string, header ...string) answer {
	o.Helper()
	return o.send(to, &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if certificate == nil {
			return &tls.Certificate{}, nil
		}
		return certificate, nil
	}}, target, header...)
}

// politely is as, with a client that sends its certificate only to a server that names its authority.
func (o *office) politely(to *peer.Server, certificate *tls.Certificate, target string) answer {
	o.Helper()
	return o.send(to, &tls.Config{Certificates: []tls.Certificate{*certificate}}, target)
}

func (o *office) send(to *peer.Server, secure *tls.Config, target string, header ...string) answer {
	o.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: o.trusting(to, secure), DisableKeepAlives: true,
		ForceAttemptHTTP2: true}}
	response := o.begin(o.Context(), client, to, target, header...)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	o.must(err)
	return answer{response.StatusCode, response.Header, string(body)}
}

// trusting adds the authority of a server to a configuration.
func (o *office) trusting(to *peer.Server, secure *tls.Config) *tls.Config {
	o.Helper()
	trusted, err := rest.TLSConfigFor(rest.AnonymousClientConfig(to.Config()))
	o.must(err)
	secure.RootCAs = trusted.RootCAs
	return secure
}

func (o *office) begin(ctx context.Context, client *http.Client, to *peer.Server, target string,
	header ...string) *http.Response {
	o.Helper()
	method, path, found := strings.Cut(target, " ")
	body := ""
	if !found {
		method, path = http.MethodGet, target
	} else {
		body = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	}
	q, err := http.NewRequestWithContext(ctx, method, to.Config().Host+path, strings.NewReader(body))
	o.must(err)
	q.Header.Set("Accept", "application/json")
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Add(header[i], header[i+1])
	}
	response, err := client.Do(q)
	o.must(err)
	return response
}

// cached returns how many requests the accepting proxy has answered from caches.
func (o *office) cached() (n float64) {
	o.Helper()
	for line := range strings.Lines(o.as(o.accepting, o.administrator, "/metrics", "Accept", "text/plain").body) {
		if strings.HasPrefix(line, "keepwatch_readpath_answered_total{") {
			n++
		}
	}
	return n
}

// The proxy knows its callers' certificates and front proxies as the server does: who they are, what they may do, and
// whom they may impersonate. What the server refuses is refused with the same status, and the same words unless
// another user is impersonated.
func TestCertificatesAreTheServers(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	admin := "Bearer " + o.rig.server.Config().BearerToken
	forged := []string{"X-Remote-User", "admin", "X-Remote-Group", "system:masters"}
	front := o.frontProxies.Client("front", nil)
	below := o.clients.Intermediate("below")
	chained := below.Client("ada", []string{"devs"})
	chained.Certificate = append(chained.Certificate, below.Certificate.Raw)
	for name, c := range map[string]struct {
		certificate *tls.Certificate
		header      []string
		want        int // of maps
	}{
		"no certificate":                 {nil, nil, 403},
		"no certificate, forged headers": {nil, forged, 403},
		"ada":                            {o.ada, nil, 200},
		"ada, forged headers":            {o.ada, forged, 200},
		"ada, a wrong token":             {o.ada, []string{"Authorization", "Bearer wrong"}, 200},
		"bob":                            {o.bob, nil, 403},
		"bob, forged headers":            {o.bob, forged, 403},
		"bob, the administrator's token": {o.bob, []string{"Authorization", admin}, 403},
		"with an intermediate authority": {chained, nil, 200},
		"without the intermediate":       {below.Client("ada", []string{"devs"}), nil, 401},
		"the administrator":              {o.administrator, nil, 200},
		"a service account's name":       {o.clients.Client("system:serviceaccount:default:reader", nil), nil, 200},
		"no name":                        {o.clients.Client("", []string{"system:masters"}), nil, 401},
		"another language":               {o.clients.Client("åda ☃", []string{"devs", "größe"}), nil, 200},
		"expired":                        {o.clients.Client("ada", []string{"devs"}, expired), nil, 401},
		"expired, with a token": {o.clients.Client("ada", []string{"devs"}, expired), []string{"Authorization",
			"Bearer " + o.token}, 200},
		"a server's":        {o.clients.Client("ada", []string{"system:masters"}, forServers), nil, 401},
		"another authority": {o.others.Client("root", []string{"system:masters"}), nil, 401},
		"another authority, a token": {o.others.Client("root", []string{"system:masters"}), []string{"Authorization",
			"Bearer " + o.token}, 200},
		"another authority, a wrong token": {o.others.Client("root", []string{"system:masters"}), []string{"Authorization",
			"Bearer wrong"}, 401},
		"another authority, forged": {o.others.Client("front", nil), forged, 401},
		"a front proxy": {front, []string{"X-Remote-User", "dora", "X-Remote-Group", "devs",
			"X-Remote-Extra-Scopes", "view", "X-Remote-Extra-Scopes", "all"}, 200},
		"a front proxy, another user":     {front, []string{"X-Remote-User", "emil"}, 403},
		"a front proxy, no user":          {front, nil, 401},
		"a front proxy, a token":          {front, []string{"X-Remote-User", "emil", "Authorization", admin}, 403},
		"a front proxy of another name":   {o.frontProxies.Client("back", nil), forged, 401},
		"impersonating without the right": {o.ada, []string{"Impersonate-User", "bob"}, 403},
		"impersonating an administrator": {o.ada, []string{"Impersonate-User", "ada", "Impersonate-Group",
			"system:masters"}, 403},
		"impersonating":            {o.carol, []string{"Impersonate-User", "bob"}, 403},
		"impersonating in a group": {o.carol, []string{"Impersonate-User", "bob", "Impersonate-Group", "devs"}, 200},
		"impersonating in another group": {o.carol, []string{"Impersonate-User", "bob", "Impersonate-Group", "devs",
			"Impersonate-Group", "system:masters"}, 403},
		"impersonating with a field": {o.carol, []string{"Impersonate-User", "bob", "Impersonate-Group", "devs",
			"Impersonate-Extra-Scopes", "view"}, 200},
		"impersonating with another field": {o.carol, []string{"Impersonate-User", "bob", "Impersonate-Group", "devs",
			"Impersonate-Extra-Scopes", "all"}, 403},
		"impersonating with a UID": {o.carol, []string{"Impersonate-User", "bob", "Impersonate-Group", "devs",
			"Impersonate-Uid", "7"}, 403},
		"impersonating a group only": {o.administrator, []string{"Impersonate-Group", "system:masters"}, 400},
		"an administrator impersonating": {o.administrator, []string{"Impersonate-User", "bob", "Impersonate-Uid", "7",
			"Impersonate-Extra-A%2fb", "x"}, 403},
		"a front proxy, impersonating": {front, []string{"X-Remote-User", "carol", "Impersonate-User", "bob",
			"Impersonate-Group", "devs"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			impersonating := slices.ContainsFunc(c.header, func(h string) bool { return strings.HasPrefix(h, "Impersonate-") })
			for _, target := range []string{maps + "?resourceVersion=0", maps, maps + "/map-001",
				"/api/v1/namespaces/kube-system/configmaps?resourceVersion=0", review, "/version"} {
				got, want := o.as(o.accepting, c.certificate, target, c.header...), o.as(o.rig.server, c.certificate, target,
					c.header...)
				if target == maps && want.code != c.want {
					t.Errorf("the server answers %d, want %d: %s", want.code, c.want, want.body)
				}
				if got.code != want.code || want.code >= 300 && !impersonating && got.body != want.body {
					t.Errorf("%s: %d %s\nthe server's: %d %s", target, got.code, got.body, want.code, want.body)
				}
				if target == review && want.code == http.StatusCreated && userOf(t, got.body) != userOf(t, want.body) {
					t.Errorf("the user: %s\nat the server: %s", got.body, want.body)
				}
			}
		})
	}
	// As the server, the proxy names the authorities whose certificates clients should send.
	for _, certificate := range []*tls.Certificate{o.ada, o.others.Client("root", nil), front} {
		if got, want := o.politely(o.accepting, certificate, maps), o.politely(o.rig.server, certificate,
			maps); got.code != want.code {
			t.Errorf("a client that sends its certificate to its authority's servers only: %d, want %d", got.code, want.code)
		}
	}
}

// A client that names the proxy's headers in its header Connection, which removes headers from forwarded requests, is
// still itself and not the proxy.
func TestCertificatesWithRemovedHeaders(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	const body = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	for _, removed := range []string{"Impersonate-User",
		"impersonate-user, Impersonate-Group, Impersonate-Uid, Authorization",
		"Impersonate-Extra-Authentication.kubernetes.io%2fcredential-Id", "Impersonate-Group"} {
		for _, to := range []*peer.Server{o.accepting, o.rig.server} {
			secure := o.trusting(to, &tls.Config{Certificates: []tls.Certificate{*o.ada}, NextProtos: []string{"http/1.1"}})
			connection, err := tls.Dial("tcp", strings.TrimPrefix(to.Config().Host, "https://"), secure)
			o.must(err)
			defer connection.Close()
			_, err = fmt.Fprintf(connection,
				"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: application/json\r\nConnection: close, %s\r\nContent-Length: %d\r\n\r\n%s",
				strings.TrimPrefix(review, "POST "), removed, len(body), body)
			o.must(err)
			response, err := io.ReadAll(connection)
			o.must(err)
			if user := userOf(t, string(response)); !strings.HasPrefix(user,
				`{"username":"ada","groups":["devs","staff","system:authenticated"],"extra":`) {
				t.Errorf("without %s, at %s, the client is %s", removed, to.Config().Host, user)
			}
		}
	}
}

// userOf returns the user of a SelfSubjectReview.
func userOf(t *testing.T, body string) string {
	t.Helper()
	_, user, found := strings.Cut(body, `"userInfo":`)
	if !found {
		t.Errorf("no review: %s", body)
	}
	return user
}

// Headers lose spaces at both ends: a user whose name or group would become another one by it is refused.
func TestCertificatesThatHeadersCannotCarry(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for name, certificate := range map[string]*tls.Certificate{
		"a name": o.clients.Client("root ", nil), "a group": o.clients.Client("ada", []string{"devs", " system:masters"}),
		"a tab":   o.clients.Client("ada", []string{"system:masters\t"}),
		"a line":  o.clients.Client("ada\r\nImpersonate-Group: system:masters", []string{"devs"}),
		"nothing": o.clients.Client("ada", []string{"devs", ""}),
	} {
		for _, target := range []string{maps + "?resourceVersion=0", "/version", "/metrics"} {
			got := o.as(o.accepting, certificate, target)
			if got.code != http.StatusForbidden || !strings.Contains(got.body, "Use a bearer token") {
				t.Errorf("%s, %s: %d %s", name, target, got.code, got.body)
			}
		}
	}
	// The same with the headers of a client that may impersonate anybody.
	for _, header := range [][]string{{"Impersonate-User", "bob", "Impersonate-Extra-Scopes", ""},
		{"Impersonate-User", "bob", "Impersonate-Group", ""}} {
		if got := o.as(o.accepting, o.administrator, review, header...); got.code < 400 || got.code >= 500 {
			t.Errorf("%q: %d %s", header, got.code, got.body)
		}
	}
}

// Reads with a certificate are answered from caches, watches end when a binding is revoked, upgrades pass through, and
// a new authority is known without a restart.
func TestCertificatesInUse(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	if got := o.as(o.accepting, o.administrator, "/metrics"); !strings.Contains(got.body,
		"keepwatch_proxy_resource_objects{") {
		t.Errorf("metrics: %d %.200s", got.code, got.body)
	}
	if got := o.as(o.accepting, o.ada, "/metrics"); got.code != http.StatusForbidden {
		t.Errorf("metrics without permission: %d", got.code)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: o.trusting(o.accepting,
		&tls.Config{Certificates: []tls.Certificate{*o.ada}}), ForceAttemptHTTP2: true}}
	watch := o.begin(t.Context(), client, o.accepting, maps+"?watch=1&resourceVersion=0")
	defer watch.Body.Close()
	if _, err := bufio.NewReader(watch.Body).ReadString('\n'); err != nil {
		t.Error(err)
	}
	o.webSocket()

	later := peer.NewAuthority(t, "later")
	dave := later.Client("dave", []string{"devs"})
	if got := o.as(o.accepting, dave, maps); got.code != http.StatusUnauthorized {
		t.Errorf("before the authority is known: %d", got.code)
	}
	o.clients.Write(o.clientsFile, later)
	o.eventually("the new authority is known", func() bool { return o.as(o.accepting, dave, maps).code == http.StatusOK })

	begun := time.Now()
	o.must(o.admin.RbacV1().RoleBindings("default").Delete(t.Context(), "devs", metav1.DeleteOptions{}))
	if _, err := io.Copy(io.Discard, watch.Body); err != nil {
		t.Errorf("the watch ends: %v", err)
	}
	t.Logf("the watch ended %d ms after the binding", time.Since(begun).Milliseconds())
	o.eventually("reads are refused", func() bool {
		return o.as(o.accepting, o.ada, maps+"?resourceVersion=0").code == http.StatusForbidden
	})
}

// webSocket watches with a certificate over a WebSocket, which is forwarded.
func (o *office) webSocket() {
	o.Helper()
	config, err := websocket.NewConfig(strings.Replace(o.accepting.Config().Host, "https://", "wss://", 1)+maps+
		"?watch=1&resourceVersion=0", "https://localhost")
	o.must(err)
	config.TlsConfig = o.trusting(o.accepting, &tls.Config{Certificates: []tls.Certificate{*o.ada}})
	connection, err := websocket.DialConfig(config)
	o.must(err)
	defer connection.Close()
	var message []byte
	o.must(websocket.Message.Receive(connection, &message))
	if !strings.Contains(string(message), `"type":"ADDED"`) {
		o.Errorf("the first message: %s", message)
	}
}

// Without --impersonate a client with a certificate alone is told what to do, and one with a token is judged by it.
func TestCertificatesAreNotAccepted(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for _, target := range []string{maps + "?resourceVersion=0", "/version", "/metrics", review} {
		got := o.as(o.refusing, o.ada, target)
		if got.code != http.StatusUnauthorized ||
			!strings.Contains(got.body, "use a bearer token, or start the proxy with --impersonate") {
			t.Errorf("%s: %d %s", target, got.code, got.body)
		}
	}
	if got := o.as(o.refusing, o.ada, "/livez"); got.code != http.StatusOK {
		t.Errorf("/livez: %d %s", got.code, got.body)
	}
	if got := o.as(o.refusing, o.bob, maps, "Authorization", "Bearer "+o.token); got.code != http.StatusOK {
		t.Errorf("with a token: %d %s", got.code, got.body)
	}
	if got := o.as(o.refusing, nil, maps, "X-Remote-User", "admin", "X-Remote-Group",
		"system:masters"); got.code != http.StatusForbidden {
		t.Errorf("forged headers: %d %s", got.code, got.body)
	}
}
