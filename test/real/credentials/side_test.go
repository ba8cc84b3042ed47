// Package credentials compares the credentials that a test server and kube-apiserver issue and judge: random requests
// and reviews of service accounts' tokens, and random CertificateSigningRequests. Both servers get the same requests,
// and their answers are compared whole, except identities, versions and times.
package credentials

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/controlplane"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	stepsFlag = flag.Int("credentials.steps", 400, "how many random requests to compare in each test")
	seedFlag  = flag.Uint64("credentials.seed", 1, "draw requests as a run did that printed this seed; 0 draws anew")
)

func TestMain(m *testing.M) { peer.Main(m) }

func newRandom(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-credentials.seed %d", seed)
	return rand.New(rand.NewPCG(seed, 11))
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// side is one of the two servers.
type side struct {
	kubernetes.Interface
	config *rest.Config
	client *http.Client
}

// sides starts both servers with the same issuer, key and roles. Nothing signs certificates on either.
func sides(t *testing.T) (both []side, key string) {
	t.Helper()
	k8s := peer.Kubernetes(t)
	key = k8s.ServiceAccountKey()
	own, err := controlplane.New(controlplane.Options{Authorization: controlplane.RBAC,
		ServiceAccounts: controlplane.ServiceAccounts{
			Issuers: []string{k8s.Config().Host}, SigningKeyFile: key, KeyFiles: []string{key},
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- own.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-own.Ready():
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	for _, config := range []*rest.Config{k8s.Config(), own.RESTConfig()} {
		typed, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(config)) // requests have their own credentials
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.CloseIdleConnections)
		both = append(both, side{typed, config, client})
	}
	return both, key
}

// admin is a user who may do everything. The servers' own administrators have different names.
const admin = "root"

// request is one request to both servers.
type request struct {
	method, path string
	// as impersonates a user.
	as string
	// token authenticates instead of the administrator's.
	token string
	body  any
}

// answer is the status and the body of a response.
type answer struct {
	status int
	body   []byte
}

func (s side) do(t *testing.T, r request) answer {
	t.Helper()
	var body io.Reader
	if r.body != nil {
		content, err := json.Marshal(r.body)
		if err != nil {
			t.Fatal(err)
		}
		body = strings.NewReader(string(content))
	}
	q, err := http.NewRequestWithContext(t.Context(), r.method, s.config.Host+r.path, body)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json")
	q.Header.Set("Authorization", "Bearer "+s.config.BearerToken)
	if r.token != "" {
		q.Header.Set("Authorization", "Bearer "+r.token)
	}
	if r.as != "" {
		q.Header.Set("Impersonate-User", r.as)
	}
	if r.as == admin {
		q.Header.Set("Impersonate-Group", "system:masters")
	}
	response, err := s.client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, content}
}

var (
	uids     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	times    = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	versions = regexp.MustCompile(`"resourceVersion":"\d+"`)
	goTypes  = regexp.MustCompile(`of type [a-z]+\.\w+`)
	jwts     = regexp.MustCompile(`"eyJ[\w-]*\.[\w-]*\.[\w.-]*"`)
)

// describe returns an answer without identities, versions and times, and with the content of tokens.
func (s side) describe(a answer) string {
	text := jwts.ReplaceAllStringFunc(string(a.body), func(token string) string {
		return openToken(strings.Trim(token, `"`))
	})
	text = uids.ReplaceAllString(text, "UID")
	text = times.ReplaceAllString(text, "TIME")
	text = goTypes.ReplaceAllString(text, "of a Go type")
	text = versions.ReplaceAllString(text, `"resourceVersion":"V"`)
	var object any
	if json.Unmarshal([]byte(text), &object) != nil {
		return fmt.Sprintf("%d %s", a.status, text)
	}
	sorted, _ := json.MarshalIndent(object, "", " ") // of a value that was JSON
	return fmt.Sprintf("%d %s", a.status, sorted)
}

// openToken returns the header and the claims of a token as JSON, with times relative to its beginning.
func openToken(token string) string {
	parts := strings.Split(token, ".")
	opened := make([]map[string]any, 2)
	for i := range opened {
		content, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || json.Unmarshal(content, &opened[i]) != nil {
			return `"not a token"`
		}
	}
	begin, _ := opened[1]["iat"].(float64)
	for _, claims := range []any{opened[1], opened[1]["kubernetes.io"]} {
		claims, _ := claims.(map[string]any)
		for _, name := range []string{"iat", "nbf", "exp", "warnafter"} {
			if at, ok := claims[name].(float64); ok {
				claims[name] = at - begin
			}
		}
	}
	text, _ := json.Marshal(opened) // of values that were JSON
	return string(text)
}

// grant gives a user rules everywhere, on both servers.
func grant(t *testing.T, both []side, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	for _, s := range both {
		of := metav1.ObjectMeta{Name: user}
		if _, err := s.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: of, Rules: rules},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: of, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
