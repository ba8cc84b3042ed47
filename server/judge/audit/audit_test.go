package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/judgetest"
	"github.com/keepwatch/keepwatch/server/judge/audit"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// secret is a value that no report may have.
const secret = "opensesame"

// fill creates a namespace with n ConfigMaps and two Secrets, which is deleted with the test.
func fill(t *testing.T, server *rest.Config, namespace string, n int) kubernetes.Interface {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(server)
	create := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	create(err)
	t.Cleanup(func() {
		_ = client.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{})
	})
	for i := range n {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("item-%03d", i),
			Labels: map[string]string{"n": fmt.Sprint(i)}}, Data: map[string]string{"value": "0"}}
		_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), o, metav1.CreateOptions{})
		create(err)
	}
	for _, name := range []string{"a", "b"} {
		_, err := client.CoreV1().Secrets(namespace).Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"password": secret}},
			metav1.CreateOptions{})
		create(err)
	}
	return client
}

// differences describes the differences of a report: "a/item-000 missing".
func differences(r *audit.Report) []string {
	all := []string{}
	for _, d := range r.Differences {
		text := d.Key().String() + " " + d.Kind.String()
		if d.Kind == audit.Different {
			text += " " + strings.Join(d.Fields, ",") + d.Unknown
		}
		all = append(all, text)
	}
	return all
}

func mustCompare(t *testing.T, server, against *rest.Config, o audit.Options) *audit.Report {
	t.Helper()
	report, err := audit.Servers(t.Context(), server, against, o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// printed returns both forms of a report, and fails the test if one has the secret.
func printed(t *testing.T, r *audit.Report) string {
	t.Helper()
	var text bytes.Buffer
	results := []audit.Result{{Resource: "things", Report: r}}
	if err := errors.Join(audit.PrintTable(&text, results), audit.PrintJSON(&text, results)); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{secret, "b3BlbnNlc2FtZQ", "changed"} {
		if strings.Contains(text.String(), value) {
			t.Errorf("the report has the value %q: %s", value, text.String())
		}
	}
	return text.String()
}

func TestTwinsAreEqual(t *testing.T) {
	fill(t, api, "twins", 25)
	fill(t, api, "twins-a", 3) // whose key is less than twins/ and greater than twins
	for _, o := range []audit.Options{
		{Resource: configMaps, PageSize: 4},
		{Resource: configMaps, Namespace: "twins", PageSize: -1},
		{Resource: configMaps, Namespace: "twins", LabelSelector: "n in (1,2,3)", PageSize: 2},
		{Resource: configMaps, Namespace: "twins", FieldSelector: "metadata.name=item-007"},
		{Resource: configMaps, Namespace: "none"},
		{Resource: secrets, PageSize: 1},
		{Resource: namespaces},
	} {
		r := mustCompare(t, api, twin, o)
		if !r.Equal() || r.Server.Digest != r.Against.Digest || r.Server.Objects != r.Against.Objects || r.Revision == 0 {
			t.Errorf("%+v: %+v", o, r)
		}
		if again := mustCompare(t, twin, api, o); again.Server.Digest != r.Server.Digest {
			t.Errorf("%+v: digests %s and %s", o, r.Server.Digest, again.Server.Digest)
		}
		if want := map[string]int{"n in (1,2,3)": 3, "": r.Server.Objects}[o.LabelSelector]; r.Server.Objects != want {
			t.Errorf("%+v: %d objects", o, r.Server.Objects)
		}
		if text := printed(t, r); !strings.Contains(text, "equal, digest "+r.Server.Digest[:16]) ||
			!strings.Contains(text, `"equal": true`) {
			t.Errorf("printed %s", text)
		}
	}
}

func TestPlantedDifferences(t *testing.T) {
	client := fill(t, api, "planted", 12)
	huge := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "huge"},
		Data: map[string]string{"value": strings.Repeat("x", 1_000_000)}}
	if _, err := client.CoreV1().ConfigMaps("planted").Create(t.Context(), huge, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	against := judgetest.Proxy{Answer: inItems(func(r *http.Request, items []any) []any {
		var changed []any
		for _, item := range items {
			o, m := item.(map[string]any), metadataOf(item)
			switch m["name"] {
			case "item-003":
				continue
			case "item-005":
				o["data"] = map[string]any{"value": "changed", "app.kubernetes.io/other": "changed"}
			case "item-007":
				m["resourceVersion"] = "1"
			case "item-008":
				m["uid"] = "another"
			case "huge":
				text := o["data"].(map[string]any)
				text["value"] = text["value"].(string)[1:] + "y"
			case "a":
				if o["data"] != nil {
					o["data"] = map[string]any{"password": "b3BlbnNlc2FtZTI="}
				}
			}
			changed = append(changed, item)
			if m["name"] == "item-009" {
				changed = append(changed, map[string]any{"metadata": map[string]any{"name": "item-0095", "namespace": "planted",
					"uid": "u", "resourceVersion": "2"}})
			}
		}
		return changed
	})}.Serve(t, twin)
	r := mustCompare(t, api, against, audit.Options{Resource: configMaps, Namespace: "planted", PageSize: 5})
	want := []string{
		"planted/huge different data.value",
		"planted/item-003 missing",
		`planted/item-005 different data["app.kubernetes.io/other"],data.value`,
		"planted/item-007 different metadata.resourceVersion",
		"planted/item-008 different metadata.uid",
		"planted/item-0095 extra",
	}
	if got := differences(r); !slices.Equal(got, want) || r.Missing != 1 || r.Extra != 1 || r.Different != 4 ||
		r.Equal() || !r.Complete() {
		t.Errorf("got %q in %+v", got, r)
	}
	if r.Server.Digest == r.Against.Digest || r.Server.Objects != r.Against.Objects {
		t.Errorf("%+v, %+v", r.Server, r.Against)
	}
	text := printed(t, r)
	for _, part := range []string{"things planted/item-003: missing\n",
		"things planted/item-007: different in metadata.resourceVersion\n", `"kind": "extra"`, `"equal": false`} {
		if !strings.Contains(text, part) {
			t.Errorf("printed %s without %s", text, part)
		}
	}
	r = mustCompare(t, api, against, audit.Options{Resource: secrets, Namespace: "planted"})
	if got := differences(r); !slices.Equal(got, []string{"planted/a different data.password"}) {
		t.Errorf("got %q", got)
	}
	printed(t, r)
}

// TestExpired checks that a comparison starts again if its revision expires between two pages, while the
// objects change.
func TestExpired(t *testing.T) {
	client := fill(t, api, "expired", 10)
	var pages, refused atomic.Int64
	expires := func(times int64) *rest.Config {
		refused.Store(0)
		return judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
			if !r.URL.Query().Has("continue") || refused.Load() >= times {
				return false
			}
			refused.Add(1)
			o, err := client.CoreV1().ConfigMaps("expired").Get(r.Context(), "item-000", metav1.GetOptions{})
			if err == nil {
				o.Data = map[string]string{"value": fmt.Sprint(pages.Add(1))}
				_, err = client.CoreV1().ConfigMaps("expired").Update(r.Context(), o, metav1.UpdateOptions{})
			}
			if err != nil {
				t.Error(err)
			}
			judgetest.Refuse(w, 410, "Expired", "The provided continue parameter is too old", "")
			return true
		}}.Serve(t, twin)
	}
	o := audit.Options{Resource: configMaps, Namespace: "expired", PageSize: 3}
	r := mustCompare(t, api, expires(3), o)
	if !r.Equal() || r.Restarts != 3 || r.Server.Objects != 10 {
		t.Errorf("%+v", r)
	}
	if text := printed(t, r); !strings.Contains(text, "compared again 3 times") {
		t.Errorf("printed %s", text)
	}
	_, err := audit.Servers(t.Context(), api, expires(1000), o)
	wantFailure(t, err, keepwatch.Expired, "expired 10 times", "too old")
}

// wantFailure checks the kind of the failure that an error wraps, and parts of its text.
func wantFailure(t *testing.T, err error, kind keepwatch.FailureKind, parts ...string) {
	t.Helper()
	var failure *keepwatch.Failure
	if !errors.As(err, &failure) || failure.Kind != kind {
		t.Fatalf("got error %v, want a failure: %v", err, kind)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
}

// TestSlowServer checks that a slow server bounds what is read of the other one, and that overload is
// waited for.
func TestSlowServer(t *testing.T) {
	audit.ShortWaits(t)
	const pages = 15
	fill(t, api, "slow", 2*pages)
	var fast, slow, overloads atomic.Int64
	server := judgetest.Proxy{Intercept: func(_ http.ResponseWriter, r *http.Request) bool {
		if !isNamespaces(r) {
			fast.Add(1)
		}
		return false
	}}.Serve(t, api)
	against := judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		if isNamespaces(r) {
			return false
		}
		if overloads.Add(1)%4 == 0 {
			judgetest.Refuse(w, 429, "TooManyRequests", "slow down", "")
			return true
		}
		// The request for the revision, the pages that were merged, one that is merged, one that waits, and the next request.
		done := slow.Add(1) - 1
		for fast.Load() < min(done+3, pages) {
			if r.Context().Err() != nil {
				t.Errorf("%d requests to the fast server while the slow one has answered %d", fast.Load(), done)
				return true
			}
			time.Sleep(time.Millisecond) // between two looks at the state
		}
		if fast.Load() > done+4 {
			t.Errorf("%d requests to the fast server while the slow one has answered %d", fast.Load(), done)
		}
		return false
	}}.Serve(t, twin)
	r := mustCompare(t, server, against, audit.Options{Resource: configMaps, Namespace: "slow", PageSize: 2})
	if !r.Equal() || r.Server.Objects != 2*pages || slow.Load() < pages || overloads.Load() == slow.Load() {
		t.Errorf("%+v behind %d slow requests of %d", r, slow.Load(), overloads.Load())
	}
}

func TestUnreadableObjects(t *testing.T) {
	fill(t, api, "unreadable", 4)
	against := judgetest.Proxy{Answer: inItems(func(r *http.Request, items []any) []any {
		if !strings.Contains(r.URL.Path, "secrets") {
			return items
		}
		delete(metadataOf(items[0]), "resourceVersion")
		return append(items, map[string]any{"metadata": map[string]any{"namespace": "unreadable"},
			"data": map[string]any{"password": secret}})
	})}.Serve(t, twin)
	r := mustCompare(t, api, against, audit.Options{Resource: secrets, Namespace: "unreadable"})
	if r.Equal() || r.Complete() || r.Against.Unreadable != 2 || r.Server.Unreadable != 0 || r.Against.Objects != 1 {
		t.Errorf("%+v", r)
	}
	text := printed(t, r)
	for _, part := range []string{"incomplete", "unreadable on " + against.Host, "object unreadable/a: resource version",
		"an object has no name"} {
		if !strings.Contains(text, part) {
			t.Errorf("printed %s without %s", text, part)
		}
	}
}

func TestForbidden(t *testing.T) {
	fill(t, api, "forbidden", 2)
	fill(t, api, "allowed", 2)
	against := judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/namespaces/allowed/") {
			return false
		}
		judgetest.Refuse(w, 403, "Forbidden", fmt.Sprintf(`configmaps is forbidden: User "eve" cannot list %s`, r.URL.Path),
			"")
		return true
	}}.Serve(t, twin)
	// The identity of the cluster is not readable either.
	if r := mustCompare(t, api, against, audit.Options{Resource: configMaps, Namespace: "allowed"}); !r.Equal() ||
		r.Server.Objects != 2 {
		t.Errorf("%+v", r)
	}
	for _, namespace := range []string{"forbidden", ""} {
		_, err := audit.Servers(t.Context(), api, against, audit.Options{Resource: configMaps, Namespace: namespace})
		wantFailure(t, err, keepwatch.Forbidden, against.Host, `User "eve" cannot list`)
	}
	_, err := audit.Servers(t.Context(), api, twin, audit.Options{Resource: schema.GroupVersionResource{Version: "v1",
		Resource: "nothing"}})
	wantFailure(t, err, keepwatch.Absent, api.Host)
}

func TestDifferentClusters(t *testing.T) {
	fill(t, api, "clusters", 5)
	client := fill(t, other, "clusters", 5)
	o := audit.Options{Resource: configMaps, Namespace: "clusters", PageSize: 2}
	if _, err := audit.Servers(t.Context(), api, other, o); err == nil ||
		!strings.Contains(err.Error(), "different clusters") {
		t.Errorf("error %v", err)
	}
	o.ContentsOnly = true
	if r := mustCompare(t, api, other, o); !r.Equal() || r.Server.Objects != 5 || r.Revision != 0 ||
		r.Server.Digest != r.Against.Digest {
		t.Errorf("%+v", r)
	}
	changed, err := client.CoreV1().ConfigMaps("clusters").Get(t.Context(), "item-002", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed.Labels["n"] = "changed"
	changed.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "a", UID: "changed"}}
	if _, err := client.CoreV1().ConfigMaps("clusters").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := mustCompare(t, api, other, o)
	if got := differences(r); !slices.Equal(got,
		[]string{"clusters/item-002 different metadata.labels.n,metadata.ownerReferences"}) {
		t.Errorf("got %q", got)
	}
	printed(t, r)
}

// TestLaggingServer compares with a server that never reaches the revision.
func TestLaggingServer(t *testing.T) {
	audit.ShortWaits(t)
	fill(t, api, "lagging", 2)
	var requests atomic.Int64
	against := judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		if isNamespaces(r) {
			return false
		}
		requests.Add(1)
		judgetest.Refuse(w, 504, "Timeout", "Too large resource version: 9, current: 8",
			`"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]`)
		return true
	}}.Serve(t, twin)
	_, err := audit.Servers(t.Context(), api, against, audit.Options{Resource: configMaps, Namespace: "lagging"})
	wantFailure(t, err, keepwatch.RevisionTooLarge, against.Host+" has not reached a revision that "+api.Host+" has",
		"Too large resource version")
	if requests.Load() != 7 {
		t.Errorf("%d requests", requests.Load())
	}
}

// TestUnorderedServer refuses a state that is not in the order of keys: a merge would find differences
// that do not exist.
func TestUnorderedServer(t *testing.T) {
	fill(t, api, "unordered", 4)
	against := judgetest.Proxy{Answer: inItems(func(_ *http.Request, items []any) []any {
		slices.Reverse(items)
		return items
	})}.Serve(t, twin)
	_, err := audit.Servers(t.Context(), api, against, audit.Options{Resource: configMaps, Namespace: "unordered"})
	if err == nil || !strings.Contains(err.Error(), "not in the order of keys") {
		t.Errorf("error %v", err)
	}
}

// TestFieldsUnknown checks that an object stays different if the details cannot be read.
func TestFieldsUnknown(t *testing.T) {
	fill(t, api, "details", 3)
	against := judgetest.Proxy{
		Intercept: func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=item") {
				judgetest.Refuse(w, 410, "Expired", "too old resource version", "")
				return true
			}
			return false
		},
		Answer: inItems(func(_ *http.Request, items []any) []any {
			for _, item := range items {
				metadataOf(item)["generation"] = 7
			}
			return items
		}),
	}.Serve(t, twin)
	r := mustCompare(t, api, against, audit.Options{Resource: configMaps, Namespace: "details"})
	if r.Different != 3 || !strings.Contains(r.Differences[0].Unknown, "too old") {
		t.Errorf("%+v", r)
	}
	if text := printed(t, r); !strings.Contains(text, "item-000: different, in unknown fields: ") {
		t.Errorf("printed %s", text)
	}
}

func TestCanceled(t *testing.T) {
	fill(t, api, "canceled", 3)
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	against := judgetest.Proxy{Intercept: func(_ http.ResponseWriter, r *http.Request) bool {
		if isNamespaces(r) {
			return false
		}
		cancel(over)
		<-r.Context().Done()
		return true
	}}.Serve(t, twin)
	if _, err := audit.Servers(ctx, api, against, audit.Options{Resource: configMaps}); err == nil ||
		!strings.Contains(err.Error(), "over") {
		t.Errorf("error %v", err)
	}
}

func TestJSONHasErrors(t *testing.T) {
	var text bytes.Buffer
	if err := audit.PrintJSON(&text, []audit.Result{{Resource: "pods", Err: errors.New("refused")}}); err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		Equal     bool
		Resources []struct{ Resource, Error string }
	}
	if err := json.Unmarshal(text.Bytes(), &parsed); err != nil || parsed.Equal || len(parsed.Resources) != 1 ||
		parsed.Resources[0].Error != "refused" {
		t.Errorf("%v: %s", err, text.String())
	}
}

// A list that never ends is an error: a server, or a gateway before it, sends one page again and again, with the same
// continue token or with other ones.
func TestRepeatedPages(t *testing.T) {
	for name, c := range map[string]struct{ token, first, want string }{
		"the same token": {"token", "item-%d", "sent the same continue token for two pages"},
		"the same page":  {"token-%d", "item", "sent two pages that begin with"},
	} {
		t.Run(name, func(t *testing.T) {
			var pages atomic.Int64
			endless := judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
				n := pages.Add(1)
				if n > 100 {
					judgetest.Refuse(w, http.StatusBadRequest, "BadRequest", "the list goes on", "")
					return true
				}
				of := func(format string) string { return strings.Replace(format, "%d", fmt.Sprintf("%03d", n), 1) }
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":%q},"items":[
					{"metadata":{"name":%q,"namespace":"default","uid":"u","resourceVersion":"5"}}]}`, of(c.token), of(c.first))
				return true
			}}.Serve(t, api)
			o := audit.Options{Resource: configMaps, ContentsOnly: true, PageSize: 1}
			for _, pair := range [][2]*rest.Config{{endless, twin}, {twin, endless}} {
				pages.Store(0)
				if _, err := audit.Servers(t.Context(), pair[0], pair[1], o); err == nil ||
					!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), endless.Host) {
					t.Errorf("%v, want %q", err, c.want)
				}
			}
		})
	}
}
