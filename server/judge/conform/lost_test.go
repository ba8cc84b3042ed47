package conform_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keepwatch/keepwatch/internal/testonly/judgetest"
	"github.com/keepwatch/keepwatch/server/judge/conform"
)

// acknowledge answers the nth write as if it had been done.
func acknowledge(t *testing.T, w http.ResponseWriter, r *http.Request, n int64) {
	o := map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Success"}
	code := http.StatusOK
	if r.Method != http.MethodDelete {
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			t.Error(err)
		}
		m := o["metadata"].(map[string]any)
		if r.Method == http.MethodPost {
			code, m["uid"], m["resourceVersion"] = http.StatusCreated, fmt.Sprint("lost-", n), "1"
		} else {
			var revision int
			fmt.Sscan(m["resourceVersion"].(string), &revision)
			m["resourceVersion"] = fmt.Sprint(revision + 1)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(o); err != nil {
		t.Error(err)
	}
}

// A server that loses acknowledged writes is noticed, and its watchers still have to have its state.
func TestLostWrites(t *testing.T) {
	t.Parallel()
	for method, c := range map[string]struct {
		// that are lost; a storm has few deletions, and a deletion covers up for a change or a creation before it
		first, count int64
		fact         string
	}{
		http.MethodPost:   {6, 12, "received: 404"},
		http.MethodPut:    {6, 12, "or a later state; received: it at"},
		http.MethodDelete: {1, 3, "which was deleted at"},
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			var writes atomic.Int64
			server := judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
				// Not a preparation, nor what is removed at the end.
				if r.Method != method || !strings.HasSuffix(r.URL.Path, "/configmaps") && !strings.Contains(r.URL.Path, "-storm-") {
					return false
				}
				n := writes.Add(1)
				if n < c.first || n >= c.first+c.count {
					return false
				}
				acknowledge(t, w, r, n)
				return true
			}}.Serve(t, api)
			report, err := conform.Run(t.Context(), server, conform.BuiltinOnly(conform.Only(small, "storm")))
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range report.Results {
				want := conform.NotOffered
				switch one.Rule.ID {
				case "storm.durable":
					want = conform.Broken
					if !strings.Contains(strings.Join(one.Facts, "\n"), c.fact) {
						t.Errorf("the facts are %q, without %q", one.Facts, c.fact)
					}
				case "storm.state", "storm.converges":
					want = conform.Kept
				}
				if one.Verdict != want {
					t.Errorf("%s is %v: %v", one.Rule.ID, one.Verdict, one.Facts)
				}
			}
		})
	}
}
