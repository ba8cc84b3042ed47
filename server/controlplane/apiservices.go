package controlplane

import (
	"errors"
	"net/http"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/apiservices"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/flowcontrol"
)

// aggregatorCheckNames are kube-apiserver's checks of its aggregator, besides that of the hook
// kube-apiserver-autoregistration. There, each has a controller.
var aggregatorCheckNames = []string{
	"poststarthook/start-kube-aggregator-informers",
	"poststarthook/apiservice-status-local-available-controller",
	"poststarthook/apiservice-status-remote-available-controller",
	"poststarthook/apiservice-registration-controller",
	"poststarthook/apiservice-discovery-controller",
	"autoregister-completion",
	"poststarthook/apiservice-openapi-controller",
	"poststarthook/apiservice-openapiv3-controller",
}

// aggregatorChecks returns the aggregator's health checks. All of them fail until the built-in versions
// are registered, or etcd has no space for them.
func (c *chain) aggregatorChecks() []healthz.HealthChecker {
	var checks []healthz.HealthChecker
	for _, name := range aggregatorCheckNames {
		checks = append(checks, healthz.NamedCheck(name, func(*http.Request) error {
			if c.registrar != nil && !c.registered.Load() {
				return errors.New("APIServices of built-in groups are missing")
			}
			return nil
		}))
	}
	return checks
}

// newRegistrar creates what maintains the server's own objects in apiregistration.k8s.io and
// flowcontrol.apiserver.k8s.io. The registrar is notified of writes by the storage of APIServices, in place of a watch.
func (c *chain) newRegistrar(stores map[schema.GroupResource]*genericregistry.Store) (err error) {
	c.flows = flowcontrol.Storage{
		Schemas: stored[*flowcontrolv1.FlowSchema]{stores[flowcontrolv1.Resource("flowschemas")]},
		Levels: stored[*flowcontrolv1.PriorityLevelConfiguration]{
			stores[flowcontrolv1.Resource("prioritylevelconfigurations")]},
	}
	services := stores[apiregistrationv1.Resource("apiservices")]
	versions := append(builtin.Versions(), apiextensionsv1.SchemeGroupVersion)
	definitions := c.extensions.Informers.Apiextensions().V1().CustomResourceDefinitions()
	if c.registrar, err = apiservices.New(stored[*apiregistrationv1.APIService]{services}, versions,
		definitions); err != nil {
		return err
	}
	services.AfterUpdate = func(obj runtime.Object, _ *metav1.UpdateOptions) { c.registrar.Changed(nameOf(obj)) }
	services.AfterDelete = func(obj runtime.Object, _ *metav1.DeleteOptions) { c.registrar.Changed(nameOf(obj)) }
	return nil
}

func nameOf(obj runtime.Object) string { return obj.(*apiregistrationv1.APIService).Name }

// registerVersions is a post-start hook, as createInitialObjects is.
func (c *chain) registerVersions(hook genericapiserver.PostStartHookContext) error {
	if c.registrar != nil {
		_ = c.ensureInitial(hook, "the APIServices of built-in groups", c.registrar.EnsureBuiltin) // see createInitialObjects
		c.registered.Store(true)
	}
	return nil
}

// createFlowControl is a post-start hook, as createInitialObjects is.
func (c *chain) createFlowControl(hook genericapiserver.PostStartHookContext) error {
	if c.registrar != nil {
		_ = c.ensureInitial(hook, "the flow schemas and priority levels", c.flows.Ensure) // see createInitialObjects
	}
	return nil
}
