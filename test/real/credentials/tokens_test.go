package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"
)

// settle bounds the wait for kube-apiserver, which caches a token for 10 s.
const settle = time.Minute

// accounts is service accounts, and objects to bind to, that exist or have existed on both servers.
type accounts struct {
	t      *testing.T
	random *mathrand.Rand
	sides  []side
	key    *ecdsa.PrivateKey
	counts map[string]int
	serial int
	// names are objects by resource; some are gone.
	names map[string][]string
	// tokens were issued, by side. None was used: kube-apiserver would have it in its cache.
	tokens [][]string
}

// Both servers issue tokens with the same claims, and refuse the same requests; and judge tokens alike: valid ones, for
// other audiences, forged, expired, and of objects that are gone.
func TestTokens(t *testing.T) {
	both, keyFile := sides(t)
	content, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(content)
	if err != nil {
		t.Fatal(err)
	}
	a := &accounts{
		t: t, random: newRandom(t), sides: both, key: key.(*ecdsa.PrivateKey), counts: map[string]int{},
		names: map[string][]string{}, tokens: make([][]string, 2),
	}
	for step := range *stepsFlag {
		switch n := a.random.IntN(10); {
		case n < 2 || len(a.names["serviceaccounts"]) < 2:
			a.create(pick(a.random, "serviceaccounts", "serviceaccounts", "pods", "secrets", "nodes"))
		case n == 2:
			a.remove(pick(a.random, "serviceaccounts", "pods", "secrets", "nodes"))
		case n < 6 || len(a.tokens[0]) == 0:
			a.issue(step)
		default:
			a.judge(step)
		}
	}
	t.Logf("%v", a.counts)
	for _, kind := range []string{"issue 201", "issue 404", "issue 409", "issue 400", "issue 422", "review true",
		"review false", "use 201", "use 401"} {
		if a.counts[kind] < *stepsFlag/200 {
			t.Errorf("too few of %q: %v", kind, a.counts)
		}
	}
}

const namespace = "default"

// create makes an object, or one of a name that existed.
func (a *accounts) create(resource string) {
	a.t.Helper()
	name := fmt.Sprintf("%s-%d", strings.TrimSuffix(resource, "s"), a.serial)
	a.serial++
	if old := a.names[resource]; len(old) > 0 && a.random.IntN(3) == 0 {
		name = pick(a.random, old...)
	} else {
		a.names[resource] = append(a.names[resource], name)
	}
	of := metav1.ObjectMeta{Name: name}
	pod := &corev1.Pod{ObjectMeta: of, Spec: corev1.PodSpec{
		ServiceAccountName: pick(a.random, a.orMissing("serviceaccounts"), a.orMissing("serviceaccounts"), ""),
		Containers:         []corev1.Container{{Name: "c", Image: "i"}},
		NodeName:           pick(a.random, "", a.orMissing("nodes")),
	}}
	for _, s := range a.sides {
		core := s.CoreV1()
		switch resource { // an error is that it exists, on both
		case "serviceaccounts":
			_, _ = core.ServiceAccounts(namespace).Create(a.t.Context(), &corev1.ServiceAccount{ObjectMeta: of},
				metav1.CreateOptions{})
		case "pods":
			_, _ = core.Pods(namespace).Create(a.t.Context(), pod, metav1.CreateOptions{})
		case "secrets":
			_, _ = core.Secrets(namespace).Create(a.t.Context(), &corev1.Secret{ObjectMeta: of}, metav1.CreateOptions{})
		case "nodes":
			_, _ = core.Nodes().Create(a.t.Context(), &corev1.Node{ObjectMeta: of}, metav1.CreateOptions{})
		}
	}
}

// orMissing returns the name of an object that exists or existed, and sometimes of one that never did.
func (a *accounts) orMissing(resource string) string {
	if names := a.names[resource]; len(names) > 0 && a.random.IntN(12) > 0 {
		return pick(a.random, names[max(0, len(names)-4):]...)
	}
	return "missing"
}

func (a *accounts) remove(resource string) {
	a.t.Helper()
	name, none := a.orMissing(resource), int64(0)
	at := metav1.DeleteOptions{GracePeriodSeconds: &none}
	for _, s := range a.sides {
		core := s.CoreV1()
		switch resource { // an error is that it does not exist, on both
		case "serviceaccounts":
			_ = core.ServiceAccounts(namespace).Delete(a.t.Context(), name, at)
		case "pods":
			_ = core.Pods(namespace).Delete(a.t.Context(), name, at)
		case "secrets":
			_ = core.Secrets(namespace).Delete(a.t.Context(), name, at)
		case "nodes":
			_ = core.Nodes().Delete(a.t.Context(), name, at)
		}
	}
}

// issue requests a random token.
func (a *accounts) issue(step int) {
	a.t.Helper()
	r := a.random
	account := a.orMissing("serviceaccounts")
	spec := map[string]any{}
	if r.IntN(2) == 0 {
		spec["audiences"] = pick(r, []string{}, []string{"vault"}, []string{"vault", "db"}, []string{a.sides[0].config.Host},
			[]string{"db", a.sides[0].config.Host})
	}
	if r.IntN(2) == 0 {
		spec["expirationSeconds"] = pick[any](r, nil, 0, -1, 599, 600, 3600, 3607, 3607, 1<<32, 1<<32+1)
	}
	if r.IntN(2) == 0 {
		kind := pick(r, "Pod", "Pod", "Secret", "Node", "ConfigMap")
		ref := map[string]any{"apiVersion": pick(r, "v1", "v1", "v1", "v1", "v1", "apps/v1", ""), "kind": kind,
			"name": a.orMissing(strings.ToLower(kind) + "s")}
		if r.IntN(6) == 0 {
			ref["uid"] = "other"
		}
		spec["boundObjectRef"] = ref
	}
	meta := map[string]any{}
	switch r.IntN(20) {
	case 0:
		meta["name"] = "other"
	case 1:
		meta["namespace"] = "other"
	case 2:
		meta["uid"] = "other"
	case 3:
		meta["name"], meta["namespace"], meta["labels"] = account, namespace, map[string]string{"a": "b"}
	}
	body := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": meta,
		"spec": spec}
	if r.IntN(20) == 0 {
		body["spec"] = map[string]any{"unknown": 1}
	}
	q := request{method: http.MethodPost, path: "/api/v1/namespaces/" + namespace + "/serviceaccounts/" + account +
		"/token", body: body}
	if r.IntN(10) == 0 {
		q.as = "nobody"
	}
	answers := a.compare(fmt.Sprintf("step %d: issue %v for %s as %q", step, body, account, q.as), func(int) request {
		return q
	})
	a.counts[fmt.Sprintf("issue %d", answers[0].status)]++
	if answers[0].status != http.StatusCreated || answers[1].status != http.StatusCreated {
		return
	}
	for i := range answers {
		var issued authenticationv1.TokenRequest
		if err := json.Unmarshal(answers[i].body, &issued); err != nil {
			a.t.Fatal(err)
		}
		a.tokens[i] = append(a.tokens[i], issued.Status.Token)
	}
}

// judge uses a random token, which may be changed, or has it reviewed. The token is then forgotten.
func (a *accounts) judge(step int) {
	a.t.Helper()
	r := a.random
	index := r.IntN(len(a.tokens[0]))
	var tokens []string
	for i := range a.tokens {
		tokens = append(tokens, a.tokens[i][index])
		a.tokens[i] = slices.Delete(a.tokens[i], index, index+1)
	}
	change := pick(r, append(slices.Sorted(maps.Keys(changes)), "", "", "", "", "", "", "", "")...)
	if change != "" {
		for i := range tokens {
			tokens[i] = changes[change](a, tokens[i])
		}
	}
	if r.IntN(3) == 0 {
		answers := a.compare(fmt.Sprintf("step %d: use a token (%s) %s", step, change, openToken(tokens[0])),
			func(i int) request {
				return request{method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", token: tokens[i],
					body: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}}
			})
		a.counts[fmt.Sprintf("use %d", answers[0].status)]++
		return
	}
	var audiences []string
	if r.IntN(2) == 0 {
		audiences = pick(r, []string{"vault"}, []string{"db", "vault"}, []string{"other"}, []string{a.sides[0].config.Host},
			[]string{"vault", a.sides[0].config.Host})
	}
	answers := a.compare(fmt.Sprintf("step %d: review a token (%s) %s for %v", step, change, openToken(tokens[0]),
		audiences), func(i int) request {
		review := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: tokens[i], Audiences: audiences}}
		review.APIVersion, review.Kind = "authentication.k8s.io/v1", "TokenReview"
		return request{method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/tokenreviews", body: review}
	})
	var review authenticationv1.TokenReview
	if err := json.Unmarshal(answers[0].body, &review); err != nil {
		a.t.Fatal(err)
	}
	a.counts[fmt.Sprintf("review %v", review.Status.Authenticated)]++
}

// compare sends a request to both servers, and fails the test if the answers differ for longer than kube-apiserver
// caches what it knows.
func (a *accounts) compare(what string, of func(side int) request) []answer {
	a.t.Helper()
	for deadline := time.Now().Add(settle); ; time.Sleep(time.Second) {
		answers := []answer{a.sides[0].do(a.t, of(0)), a.sides[1].do(a.t, of(1))}
		diff := cmp.Diff(a.sides[0].describe(answers[0]), a.sides[1].describe(answers[1]))
		if diff == "" {
			return answers
		}
		if time.Now().After(deadline) || !strings.Contains(what, "a token (") {
			a.t.Fatalf("%s (- kube-apiserver, + keepwatch):\n%s", what, diff)
		}
	}
}

const day = 24 * 3600 // seconds

// issued returns when a token was issued. What is compared of the tokens' times is their difference to it.
func issued(t *testing.T, token string) float64 { return claimsOf(t, token)["iat"].(float64) }

// changes make other tokens of valid ones.
var changes = map[string]func(*accounts, string) string{
	"expired":     func(a *accounts, token string) string { return a.resign(token, "exp", issued(a.t, token)-3600) },
	"later":       func(a *accounts, token string) string { return a.resign(token, "nbf", issued(a.t, token)+day) },
	"future":      func(a *accounts, token string) string { return a.resign(token, "iat", issued(a.t, token)+day) },
	"issuer":      func(a *accounts, token string) string { return a.resign(token, "iss", "https://other.example") },
	"subject":     func(a *accounts, token string) string { return a.resign(token, "sub", "system:admin") },
	"no claims":   func(a *accounts, token string) string { return a.resign(token, "kubernetes.io", map[string]any{}) },
	"text":        func(a *accounts, token string) string { return a.resign(token, "kubernetes.io", "text") },
	"no expiry":   func(a *accounts, token string) string { return a.resign(token, "exp", nil) },
	"no time":     func(a *accounts, token string) string { return a.resign(token, "nbf", nil) },
	"no id":       func(a *accounts, token string) string { return a.resign(token, "jti", nil) },
	"audience":    func(a *accounts, token string) string { return a.resign(token, "aud", a.sides[0].config.Host) },
	"no audience": func(a *accounts, token string) string { return a.resign(token, "aud", nil) },
	"bound text":  func(a *accounts, token string) string { return a.resign(token, "aud", []any{1}) },
	"forged": func(a *accounts, token string) string {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			a.t.Fatal(err)
		}
		return a.sign(key, headerOf(a.t, token)["kid"].(string), claimsOf(a.t, token))
	},
	"other key id": func(a *accounts, token string) string { return a.sign(a.key, "other", claimsOf(a.t, token)) },
	"no key id":    func(a *accounts, token string) string { return a.sign(a.key, "", claimsOf(a.t, token)) },
	"signature":    func(_ *accounts, token string) string { return token[:strings.LastIndex(token, ".")+1] + "AAAA" },
	"unsigned":     func(_ *accounts, token string) string { return token[:strings.LastIndex(token, ".")+1] },
	"payload": func(a *accounts, token string) string {
		parts, claims := strings.Split(token, "."), claimsOf(a.t, token)
		claims["jti"] = "other"
		content, err := json.Marshal(claims)
		if err != nil {
			a.t.Fatal(err)
		}
		parts[1] = base64.RawURLEncoding.EncodeToString(content)
		return strings.Join(parts, ".")
	},
	"garbage":    func(*accounts, string) string { return "garbage" },
	"four parts": func(_ *accounts, token string) string { return token + ".x" },
}

func headerOf(t *testing.T, token string) map[string]any { return part(t, token, 0) }
func claimsOf(t *testing.T, token string) map[string]any { return part(t, token, 1) }

func part(t *testing.T, token string, index int) map[string]any {
	t.Helper()
	content, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[index])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(content, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// resign returns a token with a claim changed, or removed, signed by the servers' key.
func (a *accounts) resign(token, name string, value any) string {
	claims := claimsOf(a.t, token)
	claims[name] = value
	if value == nil {
		delete(claims, name)
	}
	return a.sign(a.key, headerOf(a.t, token)["kid"].(string), claims)
}

func (a *accounts) sign(key *ecdsa.PrivateKey, id string, claims map[string]any) string {
	a.t.Helper()
	options := &jose.SignerOptions{}
	if id != "" {
		options = options.WithHeader("kid", id)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, options)
	if err != nil {
		a.t.Fatal(err)
	}
	content, err := json.Marshal(claims)
	if err != nil {
		a.t.Fatal(err)
	}
	signed, err := signer.Sign(content)
	if err != nil {
		a.t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		a.t.Fatal(err)
	}
	return text
}

var keysAddress = regexp.MustCompile(`"jwks_uri":"https://[^/]*/`)

// The documents of OpenID Connect discovery are the same, except the address.
func TestOpenIDDiscovery(t *testing.T) {
	both, _ := sides(t)
	for _, path := range []string{"/.well-known/openid-configuration", "/openid/v1/jwks", "/openid/v1/jwks/", "/openid/v1",
		"/.well-known"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			var described []string
			for _, s := range both {
				a := s.do(t, request{method: method, path: path})
				a.body = keysAddress.ReplaceAll(a.body, []byte(`"jwks_uri":"https://HOST/`))
				described = append(described, s.describe(a))
			}
			if diff := cmp.Diff(described[0], described[1]); diff != "" {
				t.Errorf("%s %s (- kube-apiserver, + keepwatch):\n%s", method, path, diff)
			}
		}
	}
}
