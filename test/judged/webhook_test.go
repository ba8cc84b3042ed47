package judged

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/keepwatch/keepwatch/test/peer"
)

const root = "../.."

// runGuarded runs an operator of Widgets with controller-runtime and its webhooks, as kubebuilder makes them. A Widget
// gets a label and a ConfigMap with its size, and its size is bounded.
func runGuarded(args []string) error {
	flags := flag.NewFlagSet("", flag.ExitOnError)
	port, certs := flags.Int("webhook-port", 0, ""), flags.String("webhook-cert-path", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics:       server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certs}),
	})
	if err != nil {
		return err
	}
	mgr.GetWebhookServer().Register("/mutate-widget", &webhook.Admission{Handler: admission.HandlerFunc(label)})
	mgr.GetWebhookServer().Register("/validate-widget", &webhook.Admission{Handler: admission.HandlerFunc(bound)})
	err = ctrl.NewControllerManagedBy(mgr).Named("widgets").For(newWidget()).Owns(&corev1.ConfigMap{}).
		Complete(guarded{mgr.GetClient()})
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

func newWidget() *unstructured.Unstructured {
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	return w
}

func label(_ context.Context, q admission.Request) admission.Response {
	w := newWidget()
	if err := json.Unmarshal(q.Object.Raw, w); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	w.SetLabels(map[string]string{"hooked": "yes"})
	labelled, err := json.Marshal(w)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(q.Object.Raw, labelled)
}

func bound(_ context.Context, q admission.Request) admission.Response {
	w := newWidget()
	if err := json.Unmarshal(q.Object.Raw, w); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if size, _, _ := unstructured.NestedInt64(w.Object, "spec", "size"); size > 100 {
		return admission.Denied("the size is above 100")
	}
	return admission.Allowed("")
}

type guarded struct{ client.Client }

func (g guarded) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	w := newWidget()
	if err := g.Get(ctx, q.NamespacedName, w); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	size, _, _ := unstructured.NestedInt64(w.Object, "spec", "size")
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: q.Name}}
	_, err := ctrl.CreateOrUpdate(ctx, g.Client, child, func() error {
		child.Data = map[string]string{"size": fmt.Sprint(size)}
		return ctrl.SetControllerReference(w, child, g.Scheme())
	})
	return ctrl.Result{}, err
}

// An operator's webhooks are called at the port that the judge gives it, also by the steps that are performed while
// the operator was killed.
func TestWebhooks(t *testing.T) {
	t.Setenv(asOperator, "webhooks")
	judge := func(workload string, flags ...string) (report string, code int) {
		t.Helper()
		args := append([]string{
			"judge", "--crds", "examples/widgets.yaml", "--webhooks", "test/judged/testdata/webhook",
			"--workload", "test/judged/testdata/" + workload, "--seed", "1", "--repeat", "1", "--shrink=false",
		}, flags...)
		args = append(args, "--", program, "--webhook-port={port}", "--webhook-cert-path={certs}")
		cmd := exec.CommandContext(t.Context(), peer.Keepwatch(t), args...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	all, code := judge("guarded", "--patience", "5m", "--plan", "crash-before-write", "--plan", "downtime")
	if code != 0 || !strings.Contains(all, "\ndowntime            2    2       0 ") {
		t.Errorf("exit %d, want 2 plans of 2 that pass in\n%s", code, all)
	}
	refused, code := judge("refused", "--patience", "5s", "--plan", "none")
	if code != 1 || !strings.Contains(refused, `admission webhook "vwidget.example.com" denied the request: the size is above 100`) {
		t.Errorf("exit %d, want that the workload is refused in\n%s", code, refused)
	}
}
