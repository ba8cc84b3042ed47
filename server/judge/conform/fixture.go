package conform

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// group is the API group of the custom resource.
	group = "conform.keepwatch.io"
	// runLabel labels everything that a run creates, with the run's name.
	runLabel = group + "/run"
	// removal bounds the deletion at the end.
	removal = 30 * time.Second
	// leaving is how long a run that has not ended by then is waited for.
	leaving = 5 * time.Second
	// established bounds the wait for the custom resource.
	established = time.Minute
)

// fixture is the namespace and the custom resource of a run.
type fixture struct {
	options     Options
	run         string
	client      *http.Client
	config      *rest.Config
	timeout     time.Duration // of a request that is not a watch
	host        *url.URL
	kubernetes  kubernetes.Interface
	definitions apiextensions.Interface

	namespace  string
	definition string // empty: none was created
	subjects   []*subject
}

func newFixture(cfg *rest.Config, o Options) (*fixture, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = -1, -1 // the server's own limits are waited for
	timeout := cmp.Or(cfg.Timeout, requestTimeout)
	cfg.Timeout = 0 // the client's would bound watches, too
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	f := &fixture{options: o, run: "conform-" + rand.String(6), namespace: o.Namespace, config: cfg,
		timeout: timeout}
	var err error
	if f.client, err = rest.HTTPClientFor(cfg); err != nil {
		return nil, err
	}
	if f.host, _, err = rest.DefaultServerUrlFor(cfg); err != nil {
		return nil, err
	}
	if f.kubernetes, err = kubernetes.NewForConfigAndClient(cfg, f.client); err != nil {
		return nil, err
	}
	f.definitions, err = apiextensions.NewForConfigAndClient(cfg, f.client)
	return f, err
}

// create creates the namespace and the custom resource. Without the permission for a definition the
// only subject are ConfigMaps, and the reason is returned.
func (f *fixture) create(ctx context.Context) (subjects []*subject, missing string, err error) {
	labels := map[string]string{runLabel: f.run}
	if f.namespace == "" {
		f.namespace = f.run // from here on it may exist
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.run, Labels: labels}}
		if _, err := f.kubernetes.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			if isRefusal(err) {
				f.namespace = ""
			}
			return nil, "", fmt.Errorf("creating a namespace: %w; with --namespace an existing one is used", err)
		}
	}
	f.subjects = []*subject{{
		client: f.client, config: f.config, timeout: f.timeout, waits: f.options.waits, host: f.host, base: "/api/v1",
		resource: "configmaps", title: "configmaps", kind: "ConfigMap", apiVersion: "v1",
		field: "data", protobuf: true, namespace: f.namespace, run: f.run, prefix: f.run + "-",
	}}
	if err := f.subjects[0].writable(ctx); err != nil {
		return nil, "", err
	}
	if f.options.builtinOnly {
		return f.subjects, "", nil
	}
	probes, err := f.define(ctx, labels)
	switch {
	case lacksRights(err):
		return f.subjects, "no custom resource: " + err.Error(), nil
	case err != nil:
		return nil, "", fmt.Errorf("creating a custom resource: %w", err)
	}
	f.subjects = append(f.subjects, probes)
	return f.subjects, "", nil
}

// define creates the custom resource, of a name of the run's own, and waits until it is served.
func (f *fixture) define(ctx context.Context, labels map[string]string) (*subject, error) {
	kind := "Probe" + f.run[len("conform-"):]
	plural := "probes" + f.run[len("conform-"):]
	value := map[string]apiextensionsv1.JSONSchemaProps{"value": {Type: "string"}}
	d := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group, Labels: labels},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object",
						Properties: value}},
				}},
			}},
		},
	}
	f.definition = d.Name // from here on it may exist
	all := f.definitions.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := all.Create(ctx, d, metav1.CreateOptions{}); err != nil {
		if isRefusal(err) {
			f.definition = ""
		}
		return nil, err
	}
	s := &subject{
		client: f.client, config: f.config, timeout: f.timeout, waits: f.options.waits, host: f.host,
		base: "/apis/" + group + "/v1", resource: plural, title: "custom resource", kind: kind, apiVersion: group + "/v1",
		field: "spec", namespace: f.namespace, run: f.run, prefix: f.run + "-",
	}
	return s, s.served(ctx)
}

// isRefusal reports whether the server says that it has not done a write. Of one without an answer, and of one that
// failed in the server, it is not known.
func isRefusal(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Code >= http.StatusBadRequest &&
		answer.Status().Code < http.StatusInternalServerError
}

// lacksRights reports whether the server does not let the user have a custom resource, neither its definition nor its
// objects, or has no definitions.
func lacksRights(err error) bool {
	if refused, ok := errors.AsType[*refusedWrite](err); ok {
		return refused.forbids()
	}
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err)
}

// writable returns an error if no object can be created.
func (s *subject) writable(ctx context.Context) error {
	o, err := s.create(ctx, "first", nil, "")
	if err != nil {
		return err
	}
	return s.remove(ctx, o)
}

// served waits until the server has the resource: it can be listed and written.
func (s *subject) served(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, established)
	defer cancel()
	for {
		err := s.writable(ctx)
		refused, ok := errors.AsType[*refusedWrite](err)
		if err == nil || ok && refused.forbids() {
			return err
		}
		if sleep(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("%s is not served within %v: %w", s.resource, established, err)
		}
	}
}

// version returns the version that the server states, or an empty one.
func (f *fixture) version(ctx context.Context) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.host.JoinPath("version").String(), nil)
	if err != nil {
		return ""
	}
	response, err := f.client.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	var v struct{ GitVersion string }
	if json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&v) != nil {
		return ""
	}
	return v.GitVersion
}

// remove deletes what the run created, also after its context is done. What it cannot delete is logged. The definition
// and the namespace come first: the server deletes their objects with them, however many these are.
func (f *fixture) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), removal)
	defer cancel()
	defer f.client.CloseIdleConnections()
	left := func(err error, advice string) {
		if err != nil && !apierrors.IsNotFound(err) {
			f.options.log("not deleted: %v; kubectl delete %s -l %s=%s", err, advice, runLabel, f.run)
		}
	}
	if f.definition != "" {
		left(f.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, f.definition,
			metav1.DeleteOptions{}), "customresourcedefinitions")
	}
	if f.namespace == f.run {
		left(f.kubernetes.CoreV1().Namespaces().Delete(ctx, f.namespace, metav1.DeleteOptions{}), "namespaces")
	} else if len(f.subjects) > 0 {
		left(f.subjects[0].clear(ctx), "configmaps -n "+f.namespace)
	}
}

// leave logs what a run that goes on may have created, and how to delete it.
func (f *fixture) leave() {
	kinds := "customresourcedefinitions,namespaces"
	if f.options.Namespace != "" {
		kinds = "customresourcedefinitions,configmaps -n " + f.options.Namespace
	}
	f.options.log("a request has not ended, as of a credential plugin that waits; what the run has created is perhaps not deleted: "+
		"kubectl delete %s -l %s=%s", kinds, runLabel, f.run)
}

// clear deletes the objects of the run, some at a time.
func (s *subject) clear(ctx context.Context) error {
	l, err := s.mustList(ctx, query("labelSelector", runLabel+"="+s.run))
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for _, o := range l.items {
		group.Go(func() error {
			err := s.remove(ctx, o)
			if refused, ok := errors.AsType[*refusedWrite](err); ok && refused.answer.code == http.StatusNotFound {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}
