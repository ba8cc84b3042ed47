package proxy

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
)

var (
	neighboursFlag = flag.Int("proxy.neighbours", 30, "how many users misbehave in TestNeighbours")
	askedFlag      = flag.Int("proxy.asked", 100, "how many requests a well-behaved user sends in TestNeighbours meanwhile")
)

// neighbours are a user who behaves well, and others who do not, in front of one proxy.
type neighbours struct {
	*personalRig
	proxy  *Proxy
	client *http.Client
	good   string   // tokens
	others []string // of one namespace
	host   string
}

// reads are what the well-behaved user asks for: an object, and a list of a namespace.
var reads = []string{one, "/api/v1/namespaces/a/configmaps?resourceVersion=0"}

// newClient returns a client that is sent whole texts, and not the compressed ones that memory has.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000, DisableCompression: true}}
}

func newNeighbours(t *testing.T, n int) *neighbours {
	r := &neighbours{client: newClient()}
	t.Cleanup(r.client.CloseIdleConnections)
	r.personalRig = newPersonalRigOf(t, serverElsewhere(t), 1, func(c *Config) { c.SmallCollection = 1 })
	r.proxy, r.host = r.replicas[0].proxy, r.replicas[0].serve.URL
	r.namespace("crowd")
	_, err := r.admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""},
			Resources: []string{"configmaps"}}},
	}, metav1.CreateOptions{})
	r.must(err)
	_, err = r.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
	}, metav1.CreateOptions{})
	r.must(err)
	text := strings.Repeat("x", 4<<10)
	for i := range 500 {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large-", i)}, Data: map[string]string{"x": text}}
		_, err := r.admin.CoreV1().ConfigMaps("crowd").Create(t.Context(), m, metav1.CreateOptions{})
		r.must(err)
	}
	r.good = r.user("good")
	for i := range n {
		name := fmt.Sprint("other-", i)
		_, err := r.admin.CoreV1().ServiceAccounts("crowd").Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		r.must(err)
		token, err := r.admin.CoreV1().ServiceAccounts("crowd").CreateToken(t.Context(), name,
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		r.must(err)
		r.others = append(r.others, token.Status.Token)
	}
	r.until("memory answers", func() bool {
		return r.ask(t.Context(), r.good, reads[0]) == http.StatusOK && r.proxy.Status().Saved["get"] > 0
	})
	return r
}

// ask sends a request and reads the response. It returns its status, zero if there is none.
func (r *neighbours) ask(ctx context.Context, token, path string) int {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.host+path, nil)
	if err != nil {
		return 0
	}
	q.Header.Set("Authorization", "Bearer "+token)
	response, err := r.client.Do(q)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// measure returns the 99th percentile of the time of the well-behaved user's requests, and the most memory in use
// meanwhile.
func (r *neighbours) measure() (p99 time.Duration, most uint64) {
	var took []time.Duration
	for i := range *askedFlag {
		began := time.Now()
		if code := r.ask(r.Context(), r.good, reads[i%len(reads)]); code != http.StatusOK {
			r.Errorf("the well-behaved user is answered %d", code)
		}
		took = append(took, time.Since(began))
		most = max(most, liveBytes())
	}
	slices.Sort(took)
	return took[len(took)*99/100], most
}

// Whatever one user or very many do, the well-behaved user is answered, and the memory in use stays within a bound.
// With -figures.record its figures are stored: how long the well-behaved user waits, beside its quiet value.
func TestNeighbours(t *testing.T) {
	if what := os.Getenv(elsewhere); what != "" {
		beElsewhere(t, what)
		return
	}
	if testing.Short() {
		t.Skip("with -short the memory of a proxy whose users misbehave is NOT tested")
	}
	r := newNeighbours(t, *neighboursFlag)
	everything := configMaps + "?resourceVersion=0"
	alone := slices.Repeat(r.others[:1], max(10, *neighboursFlag/10))
	run := figures.NewRun("bench-neighbours", "quiet")
	quiet, least := r.measure()
	t.Logf("quiet: %v, %d MiB", quiet, least>>20)
	for _, c := range []struct {
		what string
		crowd
	}{
		{fmt.Sprintf("one user lists everything, %d times at once", len(alone)), crowd{r.host, alone, everything, false}},
		{fmt.Sprintf("%d users list everything", len(r.others)), crowd{r.host, r.others, everything, false}},
		{fmt.Sprintf("one user's lists, %d, of which nothing is read", len(alone)), crowd{r.host, alone, everything, true}},
		{fmt.Sprintf("lists of %d users of which nothing is read", len(r.others)), crowd{r.host, r.others, everything, true}},
		{
			fmt.Sprintf("watches of %d users of which nothing is read", len(r.others)),
			crowd{r.host, r.others, configMaps + "?watch=1&resourceVersion=0", true},
		},
		{
			fmt.Sprintf("%d users ask for what they may not read", len(r.others)),
			crowd{r.host, r.others, "/api/v1/namespaces/a/pods/p#", false},
		},
	} {
		end := c.begin(t)
		p99, most := r.measure()
		others := end()
		t.Logf("%s, %.0f answers/s: %v, %.1f times, %d MiB", c.what, others, p99, float64(p99)/float64(quiet), most>>20)
		of := run.Of(c.what, "p99 of a well-behaved user", figures.Seconds)
		of.Set(figures.Ours, 0, p99.Seconds())
		of.Set("quiet", 0, quiet.Seconds())
		of.Goal, of.Missed = "≤ 10×", p99 > 10*quiet
		if !c.Unread {
			run.Of(c.what, "answers to the others in a second", figures.Count).Set(figures.Ours, 0, math.Round(others))
		}
		run.Of(c.what, "most memory in use", figures.Bytes).Set(figures.Ours, 0, float64(most))
		if bound := least + 128<<20 + uint64(len(r.others))*(128<<10); most > bound {
			t.Errorf("%s: %d MiB are in use, with a bound of %d", c.what, most>>20, bound>>20)
		}
	}
	r.must(run.Record())
}
