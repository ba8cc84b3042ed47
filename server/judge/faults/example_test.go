package faults_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/judge/faults"
)

// A client's first list is answered with 410. In a test, use New in place of Start.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	plan, err := faults.ParsePlan([]byte(`
rules:
- match: {verb: list, resource: pods, nth: [1]}
  fault: status
  status: Expired
`))
	if err != nil {
		panic(err)
	}
	proxy, err := faults.Start(&rest.Config{Host: server.URL}, plan, faults.Options{})
	if err != nil {
		panic(err)
	}
	defer proxy.Close()
	client, err := rest.HTTPClientFor(proxy.Config())
	if err != nil {
		panic(err)
	}
	defer client.CloseIdleConnections()
	for range 2 {
		response, err := client.Get(proxy.Config().Host + "/api/v1/pods")
		if err != nil {
			panic(err)
		}
		response.Body.Close()
		fmt.Println(response.StatusCode)
	}
	for _, c := range faults.Report(proxy.Transcript()) {
		fmt.Println(c.Lists, "lists,", c.Faults)
	}
	// Output:
	// 410
	// 200
	// 2 lists, map[status 410 Expired:1]
}
