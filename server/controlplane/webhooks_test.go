package controlplane_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// webhook serves one admission webhook and returns its client configuration.
func webhook(t *testing.T,
	decide func(
		*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) admissionregistrationv1.WebhookClientConfig {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
			return
		}
		uid := review.Request.UID
		review.Response = decide(review.Request)
		review.Response.UID = uid
		review.Request = nil
		json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: authority}
}

// Webhooks by URL mutate and refuse writes of built-in and custom kinds.
func TestAdmissionWebhooks(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	gvr := newCRD(t, c, "guarded")
	ctx := t.Context()
	none := admissionregistrationv1.SideEffectClassNone
	here := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{"", gvr.Group}, APIVersions: []string{"v1"},
			Resources: []string{"configmaps", "guarded"}},
	}}
	refuse := webhook(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: !strings.HasPrefix(r.Name, "bad"),
			Result: &metav1.Status{Message: "a bad name"}}
	})
	label := webhook(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		kind := admissionv1.PatchTypeJSONPatch
		return &admissionv1.AdmissionResponse{Allowed: true, PatchType: &kind,
			Patch: []byte(`[{"op":"add","path":"/metadata/labels","value":{"hooked":"yes"}}]`)}
	})
	mutating := must(c.typed.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx,
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "label.example.com", ClientConfig: label, Rules: rules, NamespaceSelector: here, SideEffects: &none,
				AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{}))(t)
	if mutating.Generation != 1 || *mutating.Webhooks[0].TimeoutSeconds != 10 {
		t.Errorf("the configuration is %v", mutating)
	}
	must(c.typed.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx,
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "refuse.example.com", ClientConfig: refuse, Rules: rules, NamespaceSelector: here, SideEffects: &none,
				AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{}))(t)

	configMap := func(prefix string) (*corev1.ConfigMap, error) {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
		return c.typed.CoreV1().ConfigMaps(ns).Create(ctx, object, metav1.CreateOptions{})
	}
	await.State(t, "a config map is labelled", func() (bool, string) {
		object, err := configMap("good-")
		if err != nil {
			return false, err.Error()
		}
		return object.Labels["hooked"] == "yes", "no label"
	})
	await.State(t, "a config map is refused", func() (bool, string) {
		_, err := configMap("bad-")
		return err != nil && strings.Contains(err.Error(),
			`admission webhook "refuse.example.com" denied the request: a bad name`), fmt.Sprint(err)
	})
	custom := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(), "kind": "Guarded", "metadata": map[string]any{"name": "good"},
	}}
	if got := must(c.dynamic.Resource(gvr).Namespace(ns).Create(ctx, custom,
		metav1.CreateOptions{}))(t); got.GetLabels()["hooked"] != "yes" {
		t.Errorf("the custom resource is %v", got.Object)
	}
	custom.SetName("bad")
	if _, err := c.dynamic.Resource(gvr).Namespace(ns).Create(ctx, custom, metav1.CreateOptions{}); err == nil {
		t.Error("the bad custom resource is accepted")
	}
}

// A webhook that is registered by Service is called at the service's external name. Without an address, the error says
// what to do.
func TestWebhookByService(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	byURL := webhook(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "called"}}
	})
	address := must(url.Parse(*byURL.URL))(t)
	port := must(strconv.ParseInt(address.Port(), 10, 32))(t)
	service := must(c.typed.CoreV1().Services(ns).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: int32(port)}}},
	}, metav1.CreateOptions{}))(t)
	none, servicePort := admissionregistrationv1.SideEffectClassNone, int32(port)
	must(c.typed.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx,
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "hook.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionregistrationv1.WebhookClientConfig{
					Service:  &admissionregistrationv1.ServiceReference{Namespace: ns, Name: "hook", Port: &servicePort},
					CABundle: byURL.CABundle,
				},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"configmaps"}},
				}},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
			}},
		}, metav1.CreateOptions{}))(t)
	answered := func(want string) {
		t.Helper()
		await.State(t, "the answer is "+want, func() (bool, string) {
			_, err := c.typed.CoreV1().ConfigMaps(ns).Create(ctx, configMapOf("a", nil),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil && strings.Contains(err.Error(), want), fmt.Sprint(err)
		})
	}
	answered("the service " + ns +
		"/hook cannot be reached, since this server has no cluster network: register the webhook by URL")
	service.Spec.Type, service.Spec.ExternalName = corev1.ServiceTypeExternalName, address.Hostname()
	must(c.typed.CoreV1().Services(ns).Update(ctx, service, metav1.UpdateOptions{}))(t)
	// The certificate is not for hook.NAMESPACE.svc, so that the call ends after the connection.
	answered("certificate is valid for")
}
