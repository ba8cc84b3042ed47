package readpath

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// A Table equals the reader's own if it has the same bytes, and ages of a time that the caller allows. Every other byte
// that differs is noticed.
func TestCompareTable(t *testing.T) {
	r := newRig(t, widgets, options{})
	born := time.Now().Add(-10 * time.Second)
	table := testTable
	table.Row = func(o runtime.Object) (metav1.TableRow, error) {
		row, err := testTable.Row(o)
		row.Cells[2] = Since{born, "<é> (", " ago)"}
		return row, err
	}
	at := born.Add(2*time.Minute + 30*time.Second)
	table.Now = func() time.Time { return at }
	r.reader.resource.Table = &table
	for i := range 3 {
		r.waitFor(r.create("default", fmt.Sprint("o", i), withNote("n")))
	}
	exact := func(more string) (*http.Request, *request.RequestInfo, []byte) {
		query := "?resourceVersionMatch=Exact&resourceVersion=" + r.storage.Cache().Revision().String() + more
		if strings.HasPrefix(more, "&continue") {
			query = "?" + more[1:]
		}
		_, body := r.get(r.path("")+query, accept(asTable))
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, r.path("")+query, nil)
		q.Header.Set("Accept", asTable)
		q = r.withInfo(q)
		info, _ := request.RequestInfoFrom(q.Context())
		return q, info, body
	}
	compare := func(more string, rows int, from, to time.Duration, change func([]byte) []byte) error {
		t.Helper()
		q, info, body := exact(more)
		n, err := r.reader.CompareTable(q, info, change(body), at.Add(from), at.Add(to))
		if err == nil && n != rows {
			t.Errorf("%s: %d rows are equal, want %d", more, n, rows)
		}
		return err
	}
	same := func(b []byte) []byte { return b }
	replace := func(old, with string) func([]byte) []byte {
		return func(b []byte) []byte {
			if !bytes.Contains(b, []byte(old)) {
				t.Errorf("no %s in %s", old, b)
			}
			return bytes.Replace(b, []byte(old), []byte(with), 1)
		}
	}
	for name, equal := range map[string]error{
		"the same":                compare("", 3, 0, 0, same),
		"a page":                  compare("&limit=2", 2, 0, 0, same),
		"none":                    compare("&labelSelector=tier%3Db", 0, 0, 0, same),
		"an earlier age":          compare("", 3, -5*time.Second, 5*time.Second, replace("2m30s", "2m26s")),
		"a later age":             compare("", 3, -5*time.Second, 5*time.Second, replace("2m30s", "2m34s")),
		"different ages of a row": compare("", 3, -time.Minute, time.Minute, replace("2m30s", "3m10s")),
	} {
		if equal != nil {
			t.Errorf("%s: %v", name, equal)
		}
	}
	for name, err := range map[string]error{
		"a much earlier age": compare("", 3, -5*time.Second, 5*time.Second, replace("2m30s", "2m20s")),
		"another cell":       compare("", 3, 0, 0, replace(`"o1",0`, `"o1",1`)),
		"a missing cell":     compare("", 3, 0, 0, replace(`"o1",0,`, `"o1",`)),
		"another column":     compare("", 3, 0, 0, replace(`"Labels"`, `"Label"`)),
		"other metadata":     compare("", 3, 0, 0, replace(`"note":"n"`, `"note":"m"`)),
		"a missing row": compare("", 3, 0, 0, func(b []byte) []byte {
			return append(b[:bytes.LastIndex(b, []byte(`,{"cells"`))], "]}\n"...)
		}),
		"one row more":           compare("&limit=2", 2, 0, 0, replace("]}\n", `,{"cells":[]}]}`+"\n")),
		"an incomplete response": compare("", 3, 0, 0, func(b []byte) []byte { return b[:len(b)-2] }),
		"another text":           compare("", 3, 0, 0, replace(" ago)", " long ago)")),
	} {
		if err == nil || errors.Is(err, ErrIncomparable) || strings.ContainsAny(err.Error(), `"{`) {
			t.Errorf("%s: %v", name, err) // errors are logged: they quote nothing of an object
		}
	}
	born = at.Add(time.Hour) // "<invalid>" is escaped
	r.waitFor(r.create("other", "o1"))
	if err := compare("&fieldSelector=metadata.namespace%3Dother", 1, 0, 0, same); err != nil {
		t.Errorf("an age in the future: %v", err)
	}
	q, info, body := exact("&limit=2")
	q.Header.Set("Accept", "application/json")
	if _, err := r.reader.CompareTable(q, info, body, at, at); !errors.Is(err, ErrIncomparable) {
		t.Errorf("no Table: %v", err)
	}
	if err := compare("&continue="+url.QueryEscape(continueOf(t, body)), 2, 0, 0, same); err != nil {
		t.Errorf("the second page: %v", err)
	}
}

func continueOf(t *testing.T, body []byte) string {
	t.Helper()
	_, rest, _ := strings.Cut(string(body), `"continue":"`)
	token, _, ok := strings.Cut(rest, `"`)
	if !ok || token == "" {
		t.Fatalf("no token in %s", body)
	}
	return token
}
