package controlplane_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

// accountIn creates a service account.
func accountIn(t *testing.T, c clients, ns, name string) *corev1.ServiceAccount {
	t.Helper()
	return must(c.typed.CoreV1().ServiceAccounts(ns).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
}

// tokenOf requests a token.
func tokenOf(t *testing.T, c clients, ns, account string,
	spec authenticationv1.TokenRequestSpec) *authenticationv1.TokenRequest {
	t.Helper()
	return must(c.typed.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{}))(t)
}

// bearer returns a client that has nothing but a token.
func bearer(t *testing.T, server *controlplane.Server, token string) kubernetes.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(server.RESTConfig())
	config.BearerToken = token
	return must(kubernetes.NewForConfig(config))(t)
}

// whoami returns the user of a client.
func whoami(t *testing.T, client kubernetes.Interface) (authenticationv1.UserInfo, error) {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

// claimsOf returns what a token says, without a check.
func claimsOf(t *testing.T, token string) map[string]any {
	t.Helper()
	payload := must(base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1]))(t)
	var claims map[string]any
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// A client with a token is its service account, until the account is deleted; the token of a deleted account is not
// valid for one of the same name.
func TestServiceAccountToken(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	account := accountIn(t, c, ns, "robot")
	request := tokenOf(t, c, ns, "robot", authenticationv1.TokenRequestSpec{})
	if left := time.Until(request.Status.ExpirationTimestamp.Time); left < 50*time.Minute || left > time.Hour {
		t.Errorf("a token without a lifetime expires in %v", left)
	}
	if got := request.Spec; len(got.Audiences) != 1 || *got.ExpirationSeconds != 3600 {
		t.Errorf("the defaults are %+v", got)
	}
	claims := claimsOf(t, request.Status.Token)
	identity := map[string]any{"namespace": ns, "serviceaccount": map[string]any{"name": "robot",
		"uid": string(account.UID)}}
	if !reflect.DeepEqual(claims["kubernetes.io"], identity) || claims["sub"] != "system:serviceaccount:"+ns+":robot" ||
		!reflect.DeepEqual(claims["aud"], []any{claims["iss"]}) ||
		claims["iss"] != "https://kubernetes.default.svc.cluster.local" {
		t.Errorf("the claims are %v", claims)
	}
	client := bearer(t, shared, request.Status.Token)
	user := must(whoami(t, client))(t)
	want := authenticationv1.UserInfo{
		Username: "system:serviceaccount:" + ns + ":robot", UID: string(account.UID),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + ns, "system:authenticated"},
		Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"JTI=" +
			claims["jti"].(string)}},
	}
	if !reflect.DeepEqual(user, want) {
		t.Errorf("the user is %+v\nwant %+v", user, want)
	}
	must(client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}))(t)
	if err := c.typed.CoreV1().ServiceAccounts(ns).Delete(t.Context(), "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := whoami(t, client); !apierrors.IsUnauthorized(err) {
		t.Errorf("the account is gone: %v", err)
	}
	accountIn(t, c, ns, "robot")
	if _, err := whoami(t, client); !apierrors.IsUnauthorized(err) {
		t.Errorf("another account of this name: %v", err)
	}
}

// A token that is bound to an object ends with it.
func TestBoundTokens(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns, ctx := newNamespace(t, c), t.Context()
	accountIn(t, c, ns, "robot")
	core, now := c.typed.CoreV1(), int64(0)
	pod := testPod("bound")
	pod.Spec.ServiceAccountName, pod.Spec.NodeName = "robot", ns+"-node"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bound"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns + "-node"}}
	prefix := "authentication.kubernetes.io/"
	for _, test := range []struct {
		kind, name     string
		create, remove func() error
		extra          []string
	}{
		{"Secret", "bound",
			func() error { return second(core.Secrets(ns).Create(ctx, secret, metav1.CreateOptions{})) },
			func() error { return core.Secrets(ns).Delete(ctx, "bound", metav1.DeleteOptions{}) }, nil},
		{"Pod", "bound", // of a node that does not exist
			func() error { return second(core.Pods(ns).Create(ctx, pod, metav1.CreateOptions{})) },
			func() error {
				return core.Pods(ns).Delete(ctx, "bound", metav1.DeleteOptions{GracePeriodSeconds: &now})
			},
			[]string{"pod-name", "pod-uid", "node-name"}},
		{"Node", ns + "-node",
			func() error { return second(core.Nodes().Create(ctx, node, metav1.CreateOptions{})) },
			func() error { return core.Nodes().Delete(ctx, ns+"-node", metav1.DeleteOptions{}) },
			[]string{"node-name", "node-uid"}},
	} {
		t.Run(test.kind, func(t *testing.T) {
			must(0, test.create())(t)
			ref := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: test.kind, Name: test.name}
			client := bearer(t, shared, tokenOf(t, c, ns, "robot",
				authenticationv1.TokenRequestSpec{BoundObjectRef: ref}).Status.Token)
			user := must(whoami(t, client))(t)
			if len(user.Extra) != len(test.extra)+1 {
				t.Errorf("the user is %+v", user)
			}
			for _, key := range test.extra {
				if len(user.Extra[prefix+key]) != 1 {
					t.Errorf("no %s in %+v", key, user)
				}
			}
			must(0, test.remove())(t)
			if _, err := whoami(t, client); !apierrors.IsUnauthorized(err) {
				t.Errorf("the %s is gone: %v", test.kind, err)
			}
			must(0, test.create())(t)
			if _, err := whoami(t, client); !apierrors.IsUnauthorized(err) {
				t.Errorf("another %s of this name: %v", test.kind, err)
			}
			must(0, test.remove())(t)
		})
	}
}

// The token of a pod's volume is valid for a year, and says when it should have been replaced.
func TestProjectedToken(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	accountIn(t, c, ns, "robot")
	pod := testPod("p")
	pod.Spec.ServiceAccountName = "robot"
	must(c.typed.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	lifetime := int64(3607)
	spec := authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime}
	spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "p"}
	request := tokenOf(t, c, ns, "robot", spec)
	claims := claimsOf(t, request.Status.Token)
	begin := claims["iat"].(float64)
	if warn := claims["kubernetes.io"].(map[string]any)["warnafter"]; warn != begin+3607 || claims["exp"] != begin+
		365*24*60*60 {
		t.Errorf("the claims are %v", claims)
	}
	if left := time.Until(request.Status.ExpirationTimestamp.Time); left > 3607*time.Second {
		t.Errorf("the status says %v", left)
	}
}

// Requests that kube-apiserver refuses are refused.
func TestInvalidTokenRequests(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	accountIn(t, c, ns, "robot")
	must(c.typed.CoreV1().Pods(ns).Create(t.Context(), testPod("p"), metav1.CreateOptions{}))(t)
	seconds := func(n int64) *int64 { return &n }
	bound := func(version, kind, name string) authenticationv1.TokenRequest {
		return authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: version, Kind: kind, Name: name},
		}}
	}
	otherUID := bound("v1", "Secret", "s")
	otherUID.Spec.BoundObjectRef.UID = "other"
	must(c.typed.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}},
		metav1.CreateOptions{}))(t)
	for what, test := range map[string]struct {
		account string
		request authenticationv1.TokenRequest
	}{
		`serviceaccounts "missing" not found`: {"missing", authenticationv1.TokenRequest{}},
		`TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes`: {
			"robot", authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: seconds(599)}}},
		`TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds`: {
			"robot", authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: seconds(1<<32 +
				1)}}},
		`TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "eve": must match the service account name if specified`: {
			"robot", authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Name: "eve"}}},
		`secrets "missing" not found`: {"robot",
			bound("v1", "Secret", "missing")},
		`cannot bind token to object of type /v1, Kind=ConfigMap`: {"robot",
			bound("v1", "ConfigMap", "c")},
		`cannot bind token to object of type apps/v1, Kind=Pod`: {"robot",
			bound("apps/v1", "Pod", "p")},
		`cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name.`: {"robot",
			bound("v1", "Pod", "p")},
		`the UID in the bound object reference (other) does not match the UID in record`: {"robot",
			otherUID},
		`the UID in the token request (other) does not match the UID of the service account`: {
			"robot", authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: "other"}}},
	} {
		_, err := c.typed.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), test.account, &test.request,
			metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got  %v\nwant %s", err, what)
		}
	}
}

// keyPair writes a private key, and returns its file.
func keyPair(t *testing.T, key any) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "service-account.key")
	content := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))(t)})
	must(0, os.WriteFile(file, content, 0o600))(t)
	return file
}

// sign returns a token of claims.
func sign(t *testing.T, algorithm jose.SignatureAlgorithm, key any, id string, claims ...any) string {
	t.Helper()
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key},
		(&jose.SignerOptions{}).WithHeader("kid", id)))(t)
	builder := jwt.Signed(signer)
	for _, c := range claims {
		builder = builder.Claims(c)
	}
	return must(builder.Serialize())(t)
}

// TokenReviews, and requests, judge the signature, the time, the audience and the issuer of a token.
func TestTokenReviews(t *testing.T) {
	t.Parallel()
	key := must(rsa.GenerateKey(rand.Reader, 2048))(t)
	const issuer = "https://issuer.example"
	server := start(t, controlplane.Options{ServiceAccounts: controlplane.ServiceAccounts{
		Issuers: []string{issuer, "former"}, SigningKeyFile: keyPair(t, key), KeyFiles: []string{keyPair(t, key)},
	}})
	c := connect(t, server.RESTConfig())
	accountIn(t, c, "default", "robot")
	valid := tokenOf(t, c, "default", "robot", authenticationv1.TokenRequestSpec{}).Status.Token
	elsewhere := tokenOf(t, c, "default", "robot", authenticationv1.TokenRequestSpec{Audiences: []string{"vault",
		"db"}}).Status.Token
	id := must(jwt.ParseSigned(valid, []jose.SignatureAlgorithm{jose.RS256}))(t).Headers[0].KeyID
	with := func(changes map[string]any) map[string]any {
		claims := claimsOf(t, valid)
		for name, value := range changes {
			claims[name] = value
		}
		return claims
	}
	other := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	hour, publicDER := int64(3600), must(x509.MarshalPKIXPublicKey(key.Public()))(t)
	parts := strings.Split(valid, ".")
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"`+id+`"}`)) + "." + parts[1] + "."
	for name, test := range map[string]struct {
		token     string
		audiences []string
		authentic bool
		reason    string // empty if authentic
	}{
		"valid":                  {valid, nil, true, ""},
		"for the audience":       {elsewhere, []string{"db", "other"}, true, ""},
		"a former issuer":        {sign(t, jose.RS256, key, id, with(map[string]any{"iss": "former"})), nil, true, ""},
		"one audience as a text": {sign(t, jose.RS256, key, id, with(map[string]any{"aud": issuer})), nil, true, ""},
		"without a key's name":   {sign(t, jose.RS256, key, "", with(nil)), nil, true, ""},
		"for others": {elsewhere, nil, false,
			`token audiences ["vault" "db"] is invalid for the target audiences ["https://issuer.example" "former"]`},
		"asked for others": {valid, []string{"vault"}, false,
			`token audiences ["https://issuer.example" "former"] is invalid for the target audiences ["vault"]`},
		"the admin's":             {server.RESTConfig().BearerToken, nil, true, ""},
		"the admin's, for others": {server.RESTConfig().BearerToken, []string{"vault"}, false, "invalid bearer token"},
		"garbage":                 {"garbage", nil, false, "invalid bearer token"},
		"three parts":             {"a.b.c", nil, false, "invalid bearer token"},
		"huge": {strings.Repeat("a", 1<<20) + "." + strings.Repeat("b", 1<<20) + ".c", nil, false,
			"invalid bearer token"},
		"another issuer": {sign(t, jose.RS256, key, id, with(map[string]any{"iss": "https://other.example"})), nil,
			false, "invalid bearer token"},
		"unsigned":             {unsigned, nil, false, "invalid bearer token"},
		"signed by the public": {sign(t, jose.HS256, publicDER, id, with(nil)), nil, false, "invalid bearer token"},
		"forged": {sign(t, jose.ES256, other, id, with(nil)), nil, false,
			"error in cryptographic primitive"},
		"another key": {sign(t, jose.ES256, other, "other", with(nil)), nil, false,
			"invalid signature, no keys found"},
		"changed": {parts[0] + "." +
			base64.RawURLEncoding.EncodeToString(must(json.Marshal(with(map[string]any{"sub": "eve"})))(t)) + "." + parts[2],
			nil, false, "error in cryptographic primitive"},
		"expired": {sign(t, jose.RS256, key, id, with(map[string]any{"exp": time.Now().Unix() - hour})), nil,
			false, "service account token has expired"},
		"not yet valid": {sign(t, jose.RS256, key, id, with(map[string]any{"nbf": time.Now().Unix() + hour})), nil,
			false, "service account token is not valid yet"},
		"of the future": {sign(t, jose.RS256, key, id, with(map[string]any{"iat": time.Now().Unix() + hour})), nil,
			false, "service account token is issued in the future"},
		"without an account": {sign(t, jose.RS256, key, id, with(map[string]any{"kubernetes.io": nil})), nil, false,
			"resource name may not be empty"},
		"claims of another type": {sign(t, jose.RS256, key, id, with(map[string]any{"kubernetes.io": 1})), nil, false,
			"cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: test.token,
				Audiences: test.audiences}}
			got := must(c.typed.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{}))(t).Status
			if got.Authenticated != test.authentic || test.authentic != (got.User.Username != "") ||
				!strings.Contains(got.Error, test.reason) || test.authentic && got.Error != "" {
				t.Errorf("the review says %+v", got)
			}
			if test.authentic && test.audiences != nil && !slices.Equal(got.Audiences, []string{"db"}) {
				t.Errorf("the audiences are %v", got.Audiences)
			}
			if name == "huge" {
				return // no header is as large
			}
			_, err := whoami(t, bearer(t, server.Server, test.token))
			if accepted := test.authentic && test.audiences == nil || name == "asked for others" ||
				name == "the admin's, for others"; accepted != (err == nil) || err != nil && !apierrors.IsUnauthorized(err) {
				t.Errorf("a request with it: %v", err)
			}
		})
	}
	if _, err := c.typed.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{},
		metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("a review without a token: %v", err)
	}
}

// A role of a service account is that of its token.
func TestRBACOfServiceAccounts(t *testing.T) {
	t.Parallel()
	s := startRBAC(t, controlplane.Options{})
	accountIn(t, s.admin, "default", "robot")
	s.grantTo(t, "default", "reader", rbacv1.Subject{Kind: "ServiceAccount", Namespace: "default", Name: "robot"},
		rule("list", "pods"))
	client := bearer(t, s.Server, tokenOf(t, s.admin, "default", "robot",
		authenticationv1.TokenRequestSpec{}).Status.Token)
	must(client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}))(t)
	for what, err := range map[string]error{
		"pods elsewhere": second(client.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{})),
		"secrets":        second(client.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})),
		"a token": second(client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot",
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})),
		"a review": second(client.AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x"}}, metav1.CreateOptions{})),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if body := must(client.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(t.Context()))(
		t); !strings.Contains(string(body), `"keys"`) {
		t.Errorf("the keys are %s", body)
	}
}

// What the discovery documents say verifies a token.
func TestOpenIDDiscovery(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	accountIn(t, c, ns, "discovered")
	client := must(rest.HTTPClientFor(shared.RESTConfig()))(t)
	defer client.CloseIdleConnections()
	get := func(url, mediaType string, into any) {
		t.Helper()
		answer := must(client.Get(url))(t)
		defer answer.Body.Close()
		body := must(io.ReadAll(answer.Body))(t)
		if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != mediaType ||
			answer.Header.Get("Cache-Control") != "public, max-age=3600" {
			t.Fatalf("%s: %s %v %s", url, answer.Status, answer.Header, body)
		}
		must(0, json.Unmarshal(body, into))(t)
	}
	var document struct {
		Issuer     string   `json:"issuer"`
		Keys       string   `json:"jwks_uri"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}
	get(shared.RESTConfig().Host+"/.well-known/openid-configuration", "application/json", &document)
	var keys jose.JSONWebKeySet
	get(document.Keys, "application/jwk-set+json", &keys)
	if len(keys.Keys) != 1 || !keys.Keys[0].IsPublic() || !slices.Equal(document.Algorithms, []string{"ES256"}) {
		t.Fatalf("%+v has the keys %+v", document, keys)
	}
	token := must(jwt.ParseSigned(tokenOf(t, c, ns, "discovered", authenticationv1.TokenRequestSpec{}).Status.Token,
		[]jose.SignatureAlgorithm{jose.ES256}))(t)
	var claims jwt.Claims
	must(0, token.Claims(keys, &claims))(t)
	if err := claims.Validate(jwt.Expected{Issuer: document.Issuer,
		AnyAudience: jwt.Audience{document.Issuer}}); err != nil {
		t.Error(err)
	}
}

// An issuer that is no https URL has no discovery documents, as in kube-apiserver.
func TestOpenIDDiscoveryNeedsAURL(t *testing.T) {
	t.Parallel()
	server := start(t,
		controlplane.Options{ServiceAccounts: controlplane.ServiceAccounts{Issuers: []string{"kubernetes"}}})
	rest := connect(t, server.RESTConfig()).typed.Discovery().RESTClient()
	for _, path := range []string{"/.well-known/openid-configuration", "/openid/v1/jwks"} {
		if err := rest.Get().AbsPath(path).Do(t.Context()).Error(); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A data folder has the key: tokens outlive a restart. The file is private.
func TestTokensOutliveARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := start(t, controlplane.Options{DataDir: dir})
	c := connect(t, server.RESTConfig())
	accountIn(t, c, "default", "robot")
	token := tokenOf(t, c, "default", "robot", authenticationv1.TokenRequestSpec{}).Status.Token
	server.stop()
	if mode := must(os.Stat(filepath.Join(dir, "service-account.key")))(t).Mode(); mode.Perm() != 0o600 {
		t.Errorf("the key's mode is %v", mode)
	}
	server = start(t, controlplane.Options{DataDir: dir})
	if user := must(whoami(t, bearer(t, server.Server,
		token)))(t); user.Username != "system:serviceaccount:default:robot" {
		t.Errorf("the user is %+v", user)
	}
}

// The token of a server in memory is valid for a fork, which has the same accounts.
func TestTokensAreValidForForks(t *testing.T) {
	t.Parallel()
	memory := controlplane.NewMemory()
	defer memory.Close()
	server := start(t, controlplane.Options{Memory: memory})
	defer server.stop()
	c := connect(t, server.RESTConfig())
	accountIn(t, c, "default", "robot")
	token := tokenOf(t, c, "default", "robot", authenticationv1.TokenRequestSpec{}).Status.Token
	forked := memory.Fork()
	defer forked.Close()
	fork := start(t, controlplane.Options{Memory: forked})
	defer fork.stop() // before its memory is closed
	if user := must(whoami(t, bearer(t, fork.Server, token)))(t); user.Username != "system:serviceaccount:default:robot" {
		t.Errorf("the user is %+v", user)
	}
}

// Keys and issuers that cannot be used are errors at the start, which name the file and never its content.
func TestInvalidServiceAccountKeys(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		must(0, os.WriteFile(path, []byte(content), 0o600))(t)
		return path
	}
	public := file("public.pem",
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY",
			Bytes: must(x509.MarshalPKIXPublicKey(must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t).Public()))(t)})))
	small := keyPair(t, must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))(t))
	for want, accounts := range map[string]controlplane.ServiceAccounts{
		"cannot read the signing key of service accounts " + filepath.Join(dir, "missing") +
			": no such file": {SigningKeyFile: filepath.Join(dir, "missing")},
		"garbage.pem has no private key":           {SigningKeyFile: file("garbage.pem", "secret-content")},
		"public.pem has no private key":            {SigningKeyFile: public},
		"give a key of the curve P-256":            {SigningKeyFile: small},
		"cannot read the keys of service accounts": {KeyFiles: []string{file("other.pem", "secret-content")}},
		"give a URL": {Issuers: []string{"https://[broken"}},
	} {
		err := runFails(t, controlplane.Options{ServiceAccounts: accounts})
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret-content") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
