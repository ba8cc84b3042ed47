package proxy

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var listedFlag = flag.Int("proxy.listed", 5,
	"in how many namespaces, of 50 config maps each, TestCostOfPersonalLists lists; in 1000 the cost is judged")

// discarded is the response of a client that costs nothing.
type discarded struct {
	header http.Header
	bytes  int
}

func (d *discarded) Header() http.Header { return d.header }
func (d *discarded) WriteHeader(int)     {}
func (d *discarded) Flush()              {}
func (d *discarded) Write(b []byte) (int, error) {
	d.bytes += len(b)
	return len(b), nil
}

// A list of a personal view that has all namespaces is, byte for byte, the list of everything. With 50,000 objects in
// 1,000 namespaces it takes 1.3 times as long at most.
func TestCostOfPersonalLists(t *testing.T) {
	const objects, most = 50, 1.3
	r := newPersonalRig(t, 1, func(*Config) {})
	ada, eve := r.user("ada"), r.user("eve")
	data := map[string]string{"text": strings.Repeat("some text ", 400)}
	writing, ctx := errgroup.WithContext(t.Context())
	writing.SetLimit(16)
	for i := range *listedFlag {
		writing.Go(func() error {
			namespace := fmt.Sprint("team-", i)
			of := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			_, err := r.admin.CoreV1().Namespaces().Create(ctx, of, metav1.CreateOptions{})
			for j := 0; j < objects && err == nil; j++ {
				m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", j)}, Data: data}
				_, err = r.admin.CoreV1().ConfigMaps(namespace).Create(ctx, m, metav1.CreateOptions{})
			}
			return err
		})
	}
	r.must(writing.Wait())
	all, err := r.admin.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	r.must(err)
	for _, namespace := range all.Items {
		r.grant("ada", namespace.Name)
	}
	r.sees(ada, len(all.Items))
	r.grant("eve", "")
	r.until("everything is allowed", func() bool { return r.get(0, eve, anyState).code == http.StatusOK })

	present := r.get(0, ada, anyState).list.Metadata.ResourceVersion
	path := configMaps + "?resourceVersionMatch=Exact&resourceVersion=" + present
	body := func(token string) (text []byte, personal bool) {
		answer := r.request(t.Context(), r.replicas[0].serve.URL, token, path)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		r.must(err)
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", answer.Status, text)
		}
		return text, answer.Header.Get(PersonalHeader) != ""
	}
	mine, isPersonal := body(ada)
	everything, isNot := body(eve)
	if !isPersonal || isNot || !bytes.Equal(mine, everything) {
		t.Errorf("a view of all namespaces has %d bytes, and everything %d", len(mine), len(everything))
	}

	list := func(token string) time.Duration {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		q.Header.Set("Authorization", "Bearer "+token)
		q.Header.Set("Accept", "application/json")
		w := &discarded{header: http.Header{}}
		began := time.Now()
		r.replicas[0].proxy.ServeHTTP(w, q)
		took := time.Since(began)
		if w.bytes != len(everything) {
			t.Fatalf("%d bytes of %d", w.bytes, len(everything))
		}
		return took
	}
	least := [2]time.Duration{time.Hour, time.Hour}
	for range 10 {
		for i, token := range []string{eve, ada} {
			least[i] = min(least[i], list(token))
		}
	}
	ratio := least[1].Seconds() / least[0].Seconds()
	t.Logf("%d bytes in %d namespaces: everything in %v, as a view in %v: %.2f", len(everything), len(all.Items), least[0],
		least[1], ratio)
	if ratio > most && *listedFlag >= 1000 {
		t.Errorf("a view takes %.2f of the time of everything, want %.1f at most", ratio, most)
	}
}
