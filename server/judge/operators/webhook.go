package operators

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/internal/localhost"
)

// DefaultWebhooks is the folder of webhook configurations that kubebuilder makes.
const DefaultWebhooks = "config/webhook"

const (
	portWord  = "{port}"
	certsWord = "{certs}"
)

// webhookResources are the kinds of webhook configurations.
var webhookResources = map[string]string{
	"MutatingWebhookConfiguration":   "mutatingwebhookconfigurations",
	"ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}

// webhooksOf returns the paths of the webhook configurations. An operator without a port serves none.
func (o Options) webhooksOf() []string {
	if len(o.Webhooks) == 0 && o.servesWebhooks() {
		if info, err := os.Stat(DefaultWebhooks); err == nil && info.IsDir() {
			return []string{DefaultWebhooks}
		}
	}
	return o.Webhooks
}

// servesWebhooks reports whether the operator, and its next version, get a port.
func (o Options) servesWebhooks() bool {
	hasPort := func(arg string) bool { return strings.Contains(arg, portWord) }
	return slices.ContainsFunc(o.Operator.Command, hasPort) &&
		(o.Next == nil || slices.ContainsFunc(o.Next.Command, hasPort))
}

// listen chooses the port and the certificate of the operator's webhooks, and registers these. The port remains when
// the operator is started again.
func (w *world) listen(ctx context.Context, o Options) error {
	if !o.servesWebhooks() {
		return nil
	}
	objects, err := readObjects(o.webhooksOf())
	if err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	if w.port, err = localhost.FreePort(); err != nil {
		return err
	}
	certificate, err := localhost.NewCertificate()
	if err != nil {
		return err
	}
	if err := os.Mkdir(w.certs(), 0o700); err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"tls.crt": certificate.Cert, "tls.key": certificate.Key, "ca.crt": certificate.Authority,
	} {
		if err := os.WriteFile(filepath.Join(w.certs(), name), content, 0o600); err != nil {
			return err
		}
	}
	for _, object := range objects {
		resource, known := webhookResources[object.GetKind()]
		if !known {
			continue // kubebuilder's folder has the Service, too
		}
		hooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
		for _, hook := range hooks {
			if fields, ok := hook.(map[string]any); ok {
				w.direct(fields, certificate.Authority)
			}
		}
		object.Object["webhooks"] = hooks
		gvr := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
		if _, err := w.objects.Resource(gvr).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("webhooks: create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return w.listenForConversions(ctx, certificate.Authority)
}

// listenForConversions makes the webhooks that convert objects of definitions be called at the operator's port.
func (w *world) listenForConversions(ctx context.Context, authority []byte) error {
	all, err := w.objects.Resource(definitions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, definition := range all.Items {
		hook, found, _ := unstructured.NestedMap(definition.Object, "spec", "conversion", "webhook")
		if !found {
			continue
		}
		w.direct(hook, authority)
		if err := unstructured.SetNestedMap(definition.Object, hook, "spec", "conversion", "webhook"); err != nil {
			return err
		}
		if _, err := w.objects.Resource(definitions).Update(ctx, &definition, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("conversion webhook of %s: %w", definition.GetName(), err)
		}
	}
	return nil
}

// certs is the folder with the serving certificate of the operator's webhooks.
func (w *world) certs() string { return filepath.Join(w.folder, "certs") }

// direct makes a webhook be called at the operator's port, at the path that it has.
func (w *world) direct(hook map[string]any, authority []byte) {
	path, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "path")
	hook["clientConfig"] = map[string]any{
		"url":      fmt.Sprintf("https://127.0.0.1:%d/%s", w.port, strings.TrimPrefix(path, "/")),
		"caBundle": base64.StdEncoding.EncodeToString(authority),
	}
}

// fill replaces the words of a command that are different in each run.
func (w *world) fill(args []string, kubeconfig string) []string {
	words := strings.NewReplacer("{kubeconfig}", kubeconfig, portWord, strconv.Itoa(w.port), certsWord, w.certs())
	filled := make([]string, len(args))
	for n, arg := range args {
		filled[n] = words.Replace(arg)
	}
	return filled
}

// isUncalled reports whether the server could not call a webhook whose failurePolicy is Fail, or one that converts.
func isUncalled(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return apierrors.IsInternalError(err) && strings.Contains(text, "failed calling webhook") ||
		strings.Contains(text, "conversion webhook for") && strings.Contains(text, "failed")
}

// perform does what step n says, except that it does not wait. What is refused because the operator's webhooks cannot
// be called is repeated, as somebody does who uses a cluster: the operator may be about to start.
func (r *run) perform(ctx context.Context, n int) error { return r.performFrom(ctx, n, 0) }

// performFrom leaves out what was done already of the things that a step does.
func (r *run) performFrom(ctx context.Context, n, done int) error {
	defer r.world.traffic.performed()
	s := r.steps[n]
	if s.action == advance && done == 0 {
		_, err := r.world.perform(ctx, s)
		return err
	}
	for _, o := range s.objects[min(done, len(s.objects)):] {
		var refused error
		_, err := r.until(ctx, n, func() (bool, error) {
			refused = r.world.performOn(ctx, s.action, o.DeepCopy())
			return !isUncalled(refused), nil
		})
		if err == nil {
			err = refused
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}
