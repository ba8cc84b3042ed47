package envtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// A mutating webhook that is registered by a service, which envtest replaces by the URL of the test's own server, and
// a validating one that is registered by its URL after the start.
func TestWebhooks(t *testing.T) {
	env := environment(t, assets(t))
	path, fail, none := "/stamp", admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	configMaps := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
			Resources: []string{"configmaps"}},
	}}
	ours := &metav1.LabelSelector{MatchLabels: map[string]string{"test": "webhooks"}}
	env.WebhookInstallOptions.MutatingWebhooks = []*admissionregistrationv1.MutatingWebhookConfiguration{{
		ObjectMeta: metav1.ObjectMeta{Name: "stamp"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "stamp.example.com", Rules: configMaps, ObjectSelector: ours, FailurePolicy: &fail, SideEffects: &none,
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "webhooks", Path: &path},
			},
		}},
	}}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	serveWebhooks(t, env.WebhookInstallOptions)
	c := newClient(t, config)

	options := env.WebhookInstallOptions
	url := fmt.Sprintf("https://%s:%d/refuse", options.LocalServingHost, options.LocalServingPort)
	if err := c.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "refuse"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "refuse.example.com", Rules: configMaps, ObjectSelector: ours, FailurePolicy: &fail, SideEffects: &none,
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url,
				CABundle: options.LocalServingCAData},
		}},
	}); err != nil {
		t.Fatal(err)
	}

	refused := configMap("refused")
	refused.Labels = ours.MatchLabels
	await.NoError(t, "the validating webhook is called", func() error {
		dry := refused.DeepCopy()
		if err := c.Create(t.Context(), dry, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the create is answered: %v", err)
		}
		return nil
	})
	accepted := configMap("accepted")
	accepted.Labels = ours.MatchLabels
	await.NoError(t, "the mutating webhook is called", func() error {
		dry := accepted.DeepCopy()
		if err := c.Create(t.Context(), dry, client.DryRunAll); err != nil {
			return err
		}
		if dry.Data["stamped-by"] != "admin" {
			return fmt.Errorf("the object has %v", dry.Data)
		}
		return nil
	})
}

// serveWebhooks serves both webhooks until the test ends.
func serveWebhooks(t *testing.T, options envtest.WebhookInstallOptions) {
	t.Helper()
	server := webhook.NewServer(webhook.Options{
		Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
	})
	server.Register("/stamp", &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context,
		r admission.Request) admission.Response {
		var o map[string]any
		if err := json.Unmarshal(r.Object.Raw, &o); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		o["data"] = map[string]string{"stamped-by": r.UserInfo.Username}
		stamped, err := json.Marshal(o)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.PatchResponseFromRaw(r.Object.Raw, stamped)
	})})
	server.Register("/refuse", &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context,
		r admission.Request) admission.Response {
		if r.Name == "refused" {
			return admission.Denied("refused by a test")
		}
		return admission.Allowed("")
	})})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
