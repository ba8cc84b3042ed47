package cluster

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/startup"
	"github.com/keepwatch/keepwatch/stream"
)

// The UID of the cluster is empty only if the server does not show it.
func TestIdentity(t *testing.T) {
	const known = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"kube-system","uid":"u-1"}}`
	refusal := func(code int32, reason metav1.StatusReason) string {
		text, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status: metav1.StatusFailure, Code: code, Reason: reason})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, test := range map[string]struct {
		answers []string // the last one repeats
		want    string   // the UID
		refused bool
	}{
		"shown":     {answers: []string{known}, want: "u-1"},
		"forbidden": {answers: []string{refusal(403, metav1.StatusReasonForbidden)}},
		"missing":   {answers: []string{refusal(404, metav1.StatusReasonNotFound)}},
		"starting": {answers: []string{refusal(500, metav1.StatusReasonInternalError),
			refusal(401, metav1.StatusReasonUnauthorized), known}, want: "u-1"},
		"refused": {answers: []string{refusal(400, metav1.StatusReasonBadRequest)}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if q.URL.Path != "/api/v1/namespaces/kube-system" {
					t.Errorf("%s is asked for", q.URL.Path)
				}
				answer := test.answers[min(int(asked.Add(1)), len(test.answers))-1]
				w.Header().Set("Content-Type", "application/json")
				var s metav1.Status
				if err := json.Unmarshal([]byte(answer), &s); err == nil && s.Code != 0 {
					w.WriteHeader(int(s.Code))
				}
				_, _ = io.WriteString(w, answer)
			}))
			defer server.Close()
			untilFinal := func(ctx context.Context, request func(context.Context) error) error {
				err := request(ctx)
				for err != nil && !startup.Final(err) {
					err = request(ctx)
				}
				return err
			}
			target := &Target{Config: &rest.Config{Host: server.URL}}
			id, err := target.Identity(t.Context(), untilFinal)
			if (err != nil) != test.refused {
				t.Fatal(err)
			}
			if want := (stream.Cluster{UID: test.want, Server: server.URL}); err == nil && id.Cluster != want {
				t.Errorf("%+v, want %+v", id.Cluster, want)
			}
		})
	}
}
