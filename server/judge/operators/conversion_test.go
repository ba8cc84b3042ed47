package operators_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch/server/judge/operators"
)

// converted is the definition of Widgets, of which version v1beta1 has a count in place of a size.
const converted = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {service: {namespace: system, name: webhook-service, path: /convert}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
  - name: v1beta1
    served: true
    storage: false
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {count: {type: integer}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// convert serves the conversion of Widgets at a port of this machine.
func convert(port, certs string) {
	handler := func(w http.ResponseWriter, q *http.Request) {
		var review apiextensionsv1.ConversionReview
		if err := json.NewDecoder(q.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID,
			Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			o := &unstructured.Unstructured{}
			if err := o.UnmarshalJSON(raw.Raw); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			from, to := "count", "size"
			if review.Request.DesiredAPIVersion == "example.com/v1beta1" {
				from, to = to, from
			}
			if n, found, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", from); found {
				o.Object["spec"] = map[string]any{to: n}
			}
			o.SetAPIVersion(review.Request.DesiredAPIVersion)
			answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Object: o})
		}
		review.Request, review.Response = nil, answer
		_ = json.NewEncoder(w).Encode(review)
	}
	server := http.Server{Addr: "127.0.0.1:" + port, Handler: http.HandlerFunc(handler)}
	fmt.Fprintln(os.Stderr, server.ListenAndServeTLS(filepath.Join(certs, "tls.crt"), filepath.Join(certs, "tls.key")))
}

// TestConversions checks that the operator converts the objects of its definition, and that steps wait for it while it
// is down.
func TestConversions(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const widget = "apiVersion: example.com/v1beta1, kind: Widget, metadata: {name: web, namespace: shop}"
	report := bug{}.judge(t, variant{}, func(o *operators.Options) {
		o.Operator = operators.Operator{Command: []string{"env", asOperator + "=yes", program, "{port}", "{certs}"}}
		o.CRDs = []string{write(t, map[string]string{"crd.yaml": converted})}
		o.Workload = write(t, map[string]string{
			"1-create.yaml": "{" + widget + ", spec: {count: 1}}", "2-resize.patch.yaml": "{" + widget + ", spec: {count: 2}}",
		})
		o.Plans = []string{"crash-after-write:1", "downtime"}
	})
	if len(report.Results) != 3 || len(report.Findings) > 0 {
		t.Error(describe(t, report))
	}
	for _, r := range report.Results {
		if !r.Reached {
			t.Errorf("%v was not reached", r.Plan)
		}
	}
}
