package controlplane_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// While etcd is unavailable, the server answers reads and watches of cached revisions. Other requests
// are answered with an error with Retry-After, for which clients retry without a new list.
func TestEtcdUnavailable(t *testing.T) {
	t.Parallel()
	owner := start(t, controlplane.Options{TemporaryEtcd: true})
	server := start(t, controlplane.Options{Etcd: owner.EtcdCluster()})
	c := connect(t, server.RESTConfig())
	must(c.typed.CoreV1().Pods("default").Create(t.Context(), testPod("p"), metav1.CreateOptions{}))(t)
	list := must(c.typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}))(t)
	revision := must(strconv.Atoi(list.ResourceVersion))(t)
	owner.stop()
	await.State(t, "reads fail", func() (bool, string) {
		answer, err := refused(t, server.RESTConfig(), "/api/v1/pods", asJSON)
		return err == nil && answer.Code != 0, fmt.Sprint(answer, err)
	})

	pods := "/api/v1/namespaces/default/pods"
	var requests sync.WaitGroup // some wait for seconds
	defer requests.Wait()
	// the handlers of k8s.io/apiserver answer the second one
	for _, accept := range []string{asJSON, asJSON + ";unknown=1"} {
		for path, want := range map[string]refusal{
			pods:              {http.StatusInternalServerError, metav1.StatusReasonServerTimeout, "2"},
			pods + "?limit=1": {http.StatusInternalServerError, metav1.StatusReasonServerTimeout, "2"},
			pods + "/p":       {http.StatusInternalServerError, metav1.StatusReasonServerTimeout, "2"},
			pods + "?watch=1&resourceVersion=" + fmt.Sprint(revision+1): {http.StatusTooManyRequests,
				metav1.StatusReasonTooManyRequests, "1"},
			pods + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan": {http.StatusTooManyRequests,
				metav1.StatusReasonTooManyRequests, "1"},
			pods + "?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan": {http.StatusTooManyRequests,
				metav1.StatusReasonTooManyRequests, "1"},
			pods + "?resourceVersion=0":                                                {},
			pods + "/p?resourceVersion=0":                                              {},
			pods + "?resourceVersion=" + list.ResourceVersion:                          {},
			pods + "?watch=1&timeoutSeconds=1&resourceVersion=0":                       {},
			pods + "?watch=1&timeoutSeconds=1&resourceVersion=" + list.ResourceVersion: {},
		} {
			requests.Go(func() {
				if got, err := refused(t, server.RESTConfig(), path, accept); got != want || err != nil {
					t.Errorf("GET %s as %s: %+v, %v, want %+v", path, accept, got, err, want)
				}
			})
		}
	}
}

// refusal is the content of an error response; the zero value is a response of 200.
type refusal struct {
	Code   int
	Reason metav1.StatusReason
	after  string
}

func refused(t *testing.T, config *rest.Config, path, accept string) (refusal, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return refusal{}, err
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		return refusal{}, err
	}
	q.Header.Set("Accept", accept)
	answer, err := client.Do(q)
	if err != nil {
		return refusal{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode == http.StatusOK {
		return refusal{}, err
	}
	out := refusal{after: answer.Header.Get("Retry-After")}
	if err := json.Unmarshal(body, &out); err != nil || out.Code != answer.StatusCode {
		return out, fmt.Errorf("%s with %s, %w", answer.Status, body, err)
	}
	return out, nil
}
