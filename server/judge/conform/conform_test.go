package conform_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/judge/conform"
)

// small are options for a storm that takes a second.
var small = conform.Options{Watchers: 8, Writes: 120}

func TestServerKeepsAllRules(t *testing.T) {
	t.Parallel()
	o := small
	o.Progress = func(line string) { t.Log(line) }
	var namespace atomic.Pointer[string] // it has the name of the run
	cfg := rest.CopyConfig(api)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if _, path, found := strings.Cut(r.URL.Path, "/namespaces/"); found {
				name, _, _ := strings.Cut(path, "/")
				namespace.Store(&name)
			}
			return next.RoundTrip(r)
		})
	})
	report, err := conform.Run(t.Context(), cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Resources) != 2 {
		t.Errorf("judged with %v", report.Resources)
	}
	for _, one := range report.Results {
		want := conform.Kept
		if slices.Contains([]string{"encoding.cbor", "pages.expired", "storm.disturbed"}, one.Rule.ID) {
			want = conform.NotOffered
		}
		if one.Verdict != want {
			t.Errorf("%s is %v: %v", one.Rule.ID, one.Verdict, one.Facts)
		}
		if one.Rule.Sentence == "" || !strings.HasPrefix(one.Rule.Source, "https://") {
			t.Errorf("%s has the sentence %q and the source %q", one.Rule.ID, one.Rule.Sentence, one.Rule.Source)
		}
	}
	leavesNothing(t, "conform.keepwatch.io/run="+*namespace.Load())
}

// TestExpiredTokens judges the rule that needs a history with a beginning.
func TestExpiredTokens(t *testing.T) {
	t.Parallel()
	report, err := conform.Run(t.Context(), compacted, conform.Only(small, "pages.expired"))
	if err != nil {
		t.Fatal(err)
	}
	if got := report.Results[0]; got.Verdict != conform.Kept {
		t.Errorf("%s is %v: %v", got.Rule.ID, got.Verdict, got.Facts)
	}
}

// ofAnyRun selects the objects of all runs: no other test may run.
const ofAnyRun = "conform.keepwatch.io/run"

// leavesNothing fails the test if an object of finished runs exists after a while.
func leavesNothing(t *testing.T, selector string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := apiextensions.NewForConfig(api)
	if err != nil {
		t.Fatal(err)
	}
	labelled := metav1.ListOptions{LabelSelector: selector}
	for deadline := time.Now().Add(await.Deadline); ; time.Sleep(20 * time.Millisecond) {
		namespaces, err := client.CoreV1().Namespaces().List(t.Context(), labelled)
		if err != nil {
			t.Fatal(err)
		}
		crds, err := definitions.ApiextensionsV1().CustomResourceDefinitions().List(t.Context(), labelled)
		if err != nil {
			t.Fatal(err)
		}
		if len(namespaces.Items)+len(crds.Items) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d namespaces and %d definitions are left", len(namespaces.Items), len(crds.Items))
		}
	}
}

// newNamespace creates a namespace, and returns a client of its server.
func newNamespace(t *testing.T, server *rest.Config) (kubernetes.Interface, string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(server)
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "existing-"}}
	if ns, err = client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return client, ns.Name
}

func TestExistingNamespace(t *testing.T) {
	t.Parallel()
	client, namespace := newNamespace(t, api)
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	report, err := conform.Run(t.Context(), api, conform.Only(conform.Options{Namespace: namespace}, "list.exact",
		"pages.remaining"))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range report.Results {
		if one.Verdict != conform.Kept {
			t.Errorf("%s is %v: %v", one.Rule.ID, one.Verdict, one.Facts)
		}
	}
	left, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(left.Items) != 1 || left.Items[0].Name != "foreign" {
		t.Errorf("%d objects are left", len(left.Items))
	}
}

func TestMissingNamespace(t *testing.T) {
	t.Parallel()
	if _, err := conform.Run(t.Context(), api, conform.Options{Namespace: "missing"}); err == nil ||
		!strings.Contains(err.Error(), "not found") {
		t.Errorf("got %v", err)
	}
}

// An interrupted run deletes what it created.
func TestInterruption(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	o := small
	o.Progress = func(line string) {
		if strings.HasPrefix(line, "list.exact:") {
			interrupt()
		}
	}
	if _, err := conform.Run(ctx, api, o); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	leavesNothing(t, ofAnyRun)
}

func TestPrint(t *testing.T) {
	report := &conform.Report{Server: "https://127.0.0.1:6443", Version: "v1.37.2", Resources: []string{"configmaps"},
		Seed: 7, Results: []conform.Result{
			{Rule: conform.Rule{ID: "a.b", Sentence: "One.", Source: "https://example.com"}, Verdict: conform.Kept},
			{Rule: conform.Rule{ID: "a.c", Sentence: "Two <&.", Source: "https://example.com"}, Verdict: conform.Broken,
				Facts: []string{"required: x; received: y"}, Left: 2},
			{Rule: conform.Rule{ID: "a.d", Sentence: "Three.", Source: "https://example.com"}, Verdict: conform.NotOffered,
				Facts: []string{"422"}},
		}}
	var table, asJSON, asJUnit bytes.Buffer
	for _, err := range []error{report.PrintTable(&table), report.PrintJSON(&asJSON), report.PrintJUnit(&asJUnit)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := `https://127.0.0.1:6443 v1.37.2, judged with configmaps, seed 7, in 0s

RULE  VERDICT      SENTENCE
a.b   kept         One.
a.c   broken       Two <&.
a.d   not offered  Three.

a.c is broken (https://example.com)
  required: x; received: y
  and 2 more

a.d is not offered (https://example.com)
  422

1 kept, 1 broken, 1 not offered
`
	if table.String() != want {
		t.Errorf("the table is\n%s", table.String())
	}
	var parsed struct {
		Results []struct {
			Rule    struct{ ID string }
			Verdict string
		}
	}
	if err := json.Unmarshal(asJSON.Bytes(), &parsed); err != nil || len(parsed.Results) != 3 ||
		parsed.Results[1].Verdict != "broken" || parsed.Results[1].Rule.ID != "a.c" {
		t.Errorf("%v: %s", err, asJSON.String())
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
		Cases    []struct {
			Name    string `xml:"name,attr"`
			Failure *struct {
				Message string `xml:"message,attr"`
			} `xml:"failure"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(asJUnit.Bytes(), &suite); err != nil {
		t.Fatal(err)
	}
	if suite.Tests != 3 || suite.Failures != 1 || suite.Skipped != 1 || suite.Cases[1].Failure == nil ||
		!strings.HasPrefix(suite.Cases[1].Failure.Message, "Two <&.") {
		t.Errorf("JUnit is %s", asJUnit.String())
	}
}
