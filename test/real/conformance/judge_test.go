package conformance

import (
	"context"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/conform"
	"github.com/keepwatch/keepwatch/test/peer"
)

// TestConform judges Kubernetes.
func TestConform(t *testing.T) { judge(t, peer.Kubernetes(t), "encoding.cbor") }

// TestConformLatest judges keepwatch-apiserver, which is the newest Kubernetes with Keepwatch's reads or
// with its own.
func TestConformLatest(t *testing.T) {
	for reads, notOffered := range map[string][]string{
		"keepwatch": {"encoding.cbor", "pages.expired"}, // its history reaches back to the first revision
		"upstream":  {"encoding.cbor"},
	} {
		t.Run(reads, func(t *testing.T) {
			judge(t, peer.KeepwatchAPIServerOn(t, peer.StartEtcd(t), "--reads="+reads), notOffered...)
		})
	}
}

// TestMalformedWatch checks that the finding docs/findings/watch-malformed-revision.md is still true.
func TestMalformedWatch(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(peer.SharedKubernetes(t).Config())
	for path, want := range map[string]int32{
		"/api/v1/configmaps?watch=true&timeoutSeconds=1&resourceVersion=first": 500,
		"/api/v1/configmaps?resourceVersion=first":                             400,
	} {
		err := client.CoreV1().RESTClient().Get().RequestURI(path).Do(t.Context()).Error()
		if status := apierrors.APIStatus(nil); !errors.As(err, &status) || status.Status().Code != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// judge fails the test if a server that is killed and restarted between the writes does not keep all rules.
// It may refuse what the rules notOffered are about: CBOR is behind a feature gate that is off by default.
func judge(t *testing.T, server *peer.Server, notOffered ...string) {
	if _, err := server.Compact(t.Context()); err != nil { // continue tokens can expire then
		t.Fatal(err)
	}
	report, err := conform.Run(t.Context(), server.Config(), conform.Options{
		Watchers: 60, Writes: 600, Progress: func(line string) { t.Log(line) },
		Disturb: func(ctx context.Context) error {
			server.Kill()
			return server.Restart(ctx)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range report.Results {
		want := conform.Kept
		if slices.Contains(notOffered, one.Rule.ID) {
			want = conform.NotOffered
		}
		if one.Verdict != want {
			t.Errorf("%s is %v: %v", one.Rule.ID, one.Verdict, one.Facts)
		}
	}
}
