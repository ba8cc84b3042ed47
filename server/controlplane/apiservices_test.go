package controlplane_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	registration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

const automanaged = "kube-aggregator.kubernetes.io/automanaged"

func apiServices(t *testing.T, config *rest.Config) registration.APIServiceInterface {
	t.Helper()
	return must(aggregator.NewForConfig(config))(t).ApiregistrationV1().APIServices()
}

// A server that is ready has an available APIService for each version in discovery, except that of APIServices itself.
func TestEveryVersionHasAnAPIService(t *testing.T) {
	t.Parallel()
	server := start(t, controlplane.Options{})
	c := connect(t, server.RESTConfig())
	registered := map[string]bool{}
	for _, service := range must(apiServices(t, server.RESTConfig()).List(t.Context(), metav1.ListOptions{}))(t).Items {
		registered[service.Name] = true
		condition := service.Status.Conditions[0]
		if service.Labels[automanaged] != "onstart" || condition.Status != apiregistrationv1.ConditionTrue ||
			condition.Reason != "Local" {
			t.Errorf("%s has the labels %v and the status %+v", service.Name, service.Labels, service.Status)
		}
	}
	served := map[string]bool{"v1.": true}
	for _, group := range must(c.typed.Discovery().ServerGroups())(t).Groups {
		for _, version := range group.Versions {
			served[version.Version+"."+group.Name] = true
		}
	}
	delete(served, "v1.apiregistration.k8s.io")
	if !maps.Equal(registered, served) {
		t.Errorf("registered: %v\nserved: %v", slices.Sorted(maps.Keys(registered)), slices.Sorted(maps.Keys(served)))
	}
}

// The APIServices of definitions come and go with them. A deleted or changed one is restored, and a user's own stays.
func TestAPIServicesOfDefinitions(t *testing.T) {
	c, services := connect(t, shared.RESTConfig()), apiServices(t, shared.RESTConfig())
	ctx := t.Context()
	resource := newCRD(t, c, "gizmos")
	name := "v1." + resource.Group
	var uid types.UID
	isRegistered := func() (bool, string) {
		service, err := services.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		uid = service.UID
		want := apiregistrationv1.APIServiceSpec{Group: resource.Group, Version: "v1", GroupPriorityMinimum: 1000,
			VersionPriority: 100}
		return equality.Semantic.DeepEqual(service.Spec, want) && service.Labels[automanaged] == "true",
			"the spec or the label differs"
	}
	await.State(t, "a definition is registered", isRegistered)
	deleted := uid
	if err := services.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "a deleted APIService is restored", func() (bool, string) {
		ok, problem := isRegistered()
		return ok && uid != deleted, problem
	})
	must(services.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"versionPriority":7}}`),
		metav1.PatchOptions{}))(t)
	await.State(t, "a changed APIService is restored", isRegistered)

	own := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v2." + resource.Group},
		Spec: apiregistrationv1.APIServiceSpec{Group: resource.Group, Version: "v2", GroupPriorityMinimum: 5,
			VersionPriority: 5,
			Service:         &apiregistrationv1.ServiceReference{Namespace: "default", Name: "other"}},
	}
	condition := must(services.Create(ctx, own, metav1.CreateOptions{}))(t).Status.Conditions[0]
	if condition.Status != apiregistrationv1.ConditionFalse || condition.Reason != "NotForwarded" {
		t.Errorf("an APIService of another server is %+v", condition)
	}
	definitions := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	served := func(v2 bool) {
		t.Helper()
		await.State(t, "the definition is updated", func() (bool, string) {
			crd, err := definitions.Get(ctx, resource.Resource+"."+resource.Group, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			crd.Spec.Versions = crd.Spec.Versions[:1]
			for _, version := range []string{"v2", "v3"} {
				second := *crd.Spec.Versions[0].DeepCopy()
				second.Name, second.Storage, second.Served = version, false, v2
				crd.Spec.Versions = append(crd.Spec.Versions, second)
			}
			_, err = definitions.Update(ctx, crd, metav1.UpdateOptions{})
			return err == nil, "it was changed"
		})
	}
	third := func() error {
		_, err := services.Get(ctx, "v3."+resource.Group, metav1.GetOptions{})
		return err
	}
	served(true)
	await.State(t, "a new version is registered", func() (bool, string) { return third() == nil, "it is not" })
	served(false)
	await.State(t, "a version that is not served is not registered", func() (bool, string) {
		return apierrors.IsNotFound(third()), "it is"
	})
	if err := definitions.Delete(ctx, resource.Resource+"."+resource.Group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "the APIService of a deleted definition is gone", func() (bool, string) {
		_, err := services.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), "it exists"
	})
	kept := must(services.Get(ctx, own.Name, metav1.GetOptions{}))(t)
	if kept.Spec.Service == nil || kept.Spec.VersionPriority != 5 {
		t.Errorf("the user's APIService is %+v", kept.Spec)
	}
	kept.Spec.Service = nil
	if status := must(services.Update(ctx, kept, metav1.UpdateOptions{}))(t).Status; len(status.Conditions) != 1 ||
		status.Conditions[0].Reason != "Local" {
		t.Errorf("an APIService without a service is %+v", status)
	}
	if err := services.Delete(ctx, own.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// A start restores the APIServices of built-in versions and deletes those of versions that are gone. It writes no
// others.
func TestAPIServicesAfterRestart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	options := controlplane.Options{DataDir: t.TempDir()}
	first := start(t, options)
	services := apiServices(t, first.RESTConfig())
	if err := services.Delete(ctx, "v1.apps", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	must(services.Patch(ctx, "v1.batch", types.MergePatchType, []byte(`{"spec":{"versionPriority":7}}`),
		metav1.PatchOptions{}))(t)
	must(services.Patch(ctx, "v1.policy", types.MergePatchType,
		[]byte(`{"metadata":{"labels":null},"spec":{"versionPriority":7}}`), metav1.PatchOptions{}))(t)
	for group, mode := range map[string]string{"gone.example.com": "onstart", "forgotten.example.com": "true",
		"own.example.com": ""} {
		must(services.Create(ctx, &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: "v1." + group, Labels: map[string]string{automanaged: mode}},
			Spec: apiregistrationv1.APIServiceSpec{Group: group, Version: "v1", GroupPriorityMinimum: 1,
				VersionPriority: 1},
		}, metav1.CreateOptions{}))(t)
	}
	resource := newCRD(t, connect(t, first.RESTConfig()), "gizmos")
	exists := func(name string) func() (bool, string) {
		return func() (bool, string) {
			_, err := services.Get(ctx, name, metav1.GetOptions{})
			return err == nil, "it does not exist"
		}
	}
	await.State(t, "a definition is registered", exists("v1."+resource.Group))
	before := versions(t, services)
	if _, ok := before["v1.apps"]; ok {
		t.Error("a deleted APIService of built-in kinds is restored without a restart")
	}
	first.stop()

	second := start(t, options)
	services = apiServices(t, second.RESTConfig())
	await.State(t, "the APIService of a forgotten definition is gone", func() (bool, string) {
		ok, _ := exists("v1.forgotten.example.com")()
		return !ok, "it exists"
	})
	after := versions(t, services)
	for name, was := range before {
		is, ok := after[name]
		switch name {
		case "v1.gone.example.com", "v1.forgotten.example.com":
			if ok {
				t.Errorf("%s exists", name)
			}
		case "v1.batch":
			if priority := must(services.Get(ctx, name, metav1.GetOptions{}))(t).Spec.VersionPriority; priority != 15 {
				t.Errorf("%s has the priority %d", name, priority)
			}
		default:
			if is != was {
				t.Errorf("%s was written: %s, before %s", name, is, was)
			}
		}
	}
	if _, ok := after["v1.apps"]; !ok {
		t.Error("v1.apps is missing")
	}
}

// versions returns the resource versions of all APIServices.
func versions(t *testing.T, services registration.APIServiceInterface) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, service := range must(services.List(t.Context(), metav1.ListOptions{}))(t).Items {
		found[service.Name] = service.ResourceVersion
	}
	return found
}

// The checks of kube-apiserver's aggregator can be requested by name.
func TestAggregatorChecks(t *testing.T) {
	client := connect(t, shared.RESTConfig()).typed.Discovery().RESTClient()
	read := func(path string) string {
		t.Helper()
		return string(must(client.Get().AbsPath(path).Param("verbose", "").Do(t.Context()).Raw())(t))
	}
	for _, endpoint := range []string{"/readyz", "/livez", "/healthz"} {
		shown := read(endpoint)
		for _, name := range []string{
			"autoregister-completion",
			"poststarthook/start-kube-aggregator-informers",
			"poststarthook/apiservice-status-local-available-controller",
			"poststarthook/apiservice-status-remote-available-controller",
			"poststarthook/apiservice-registration-controller",
			"poststarthook/apiservice-discovery-controller",
			"poststarthook/kube-apiserver-autoregistration",
			"poststarthook/apiservice-openapi-controller",
			"poststarthook/apiservice-openapiv3-controller",
			"poststarthook/priority-and-fairness-config-producer",
		} {
			if !strings.Contains(shown, "[+]"+name+" ok\n") {
				t.Errorf("%s lacks %s:\n%s", endpoint, name, shown)
			}
			must(client.Get().AbsPath(endpoint + "/" + name).Do(t.Context()).Raw())(t)
		}
	}
}
