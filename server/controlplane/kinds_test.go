package controlplane_test

import (
	"crypto/x509/pkix"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// builtinKinds is the expected content of discovery, as in kube-apiserver: name, short names, kind,
// namespaced, subresources, category.
var builtinKinds = []struct {
	groupVersion, resource, short, kind string
	namespaced                          bool
	subresources                        string
	category                            string
}{
	{"v1", "configmaps", "cm", "ConfigMap", true, "", ""},
	{"v1", "endpoints", "ep", "Endpoints", true, "", ""},
	{"v1", "events", "ev", "Event", true, "", ""},
	{"v1", "limitranges", "limits", "LimitRange", true, "", ""},
	{"v1", "namespaces", "ns", "Namespace", false, "finalize,status", ""},
	{"v1", "nodes", "no", "Node", false, "status", ""},
	{"v1", "persistentvolumeclaims", "pvc", "PersistentVolumeClaim", true, "status", ""},
	{"v1", "persistentvolumes", "pv", "PersistentVolume", false, "status", ""},
	{"v1", "pods", "po", "Pod", true, "attach,binding,eviction,exec,log,portforward,status", "all"},
	{"v1", "podtemplates", "", "PodTemplate", true, "", ""},
	{"v1", "replicationcontrollers", "rc", "ReplicationController", true, "scale,status", "all"},
	{"v1", "resourcequotas", "quota", "ResourceQuota", true, "status", ""},
	{"v1", "secrets", "", "Secret", true, "", ""},
	{"v1", "serviceaccounts", "sa", "ServiceAccount", true, "token", ""},
	{"v1", "services", "svc", "Service", true, "status", "all"},
	{"admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", "", "MutatingWebhookConfiguration", false, "",
		"api-extensions"},
	{"admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", "", "ValidatingWebhookConfiguration", false, "",
		"api-extensions"},
	{"apiregistration.k8s.io/v1", "apiservices", "", "APIService", false, "status", "api-extensions"},
	{"apps/v1", "controllerrevisions", "", "ControllerRevision", true, "", ""},
	{"apps/v1", "daemonsets", "ds", "DaemonSet", true, "status", "all"},
	{"apps/v1", "deployments", "deploy", "Deployment", true, "scale,status", "all"},
	{"apps/v1", "replicasets", "rs", "ReplicaSet", true, "scale,status", "all"},
	{"apps/v1", "statefulsets", "sts", "StatefulSet", true, "scale,status", "all"},
	{"autoscaling/v1", "horizontalpodautoscalers", "hpa", "HorizontalPodAutoscaler", true, "status", "all"},
	{"autoscaling/v2", "horizontalpodautoscalers", "hpa", "HorizontalPodAutoscaler", true, "status", "all"},
	{"batch/v1", "cronjobs", "cj", "CronJob", true, "status", "all"},
	{"batch/v1", "jobs", "", "Job", true, "status", "all"},
	{"certificates.k8s.io/v1", "certificatesigningrequests", "csr", "CertificateSigningRequest", false, "approval,status",
		""},
	{"coordination.k8s.io/v1", "leases", "", "Lease", true, "", ""},
	{"discovery.k8s.io/v1", "endpointslices", "", "EndpointSlice", true, "", ""},
	{"events.k8s.io/v1", "events", "ev", "Event", true, "", ""},
	{"flowcontrol.apiserver.k8s.io/v1", "flowschemas", "", "FlowSchema", false, "status", ""},
	{"flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations", "", "PriorityLevelConfiguration", false, "status",
		""},
	{"networking.k8s.io/v1", "ingressclasses", "", "IngressClass", false, "", ""},
	{"networking.k8s.io/v1", "ingresses", "ing", "Ingress", true, "status", ""},
	{"networking.k8s.io/v1", "networkpolicies", "netpol", "NetworkPolicy", true, "", ""},
	{"node.k8s.io/v1", "runtimeclasses", "", "RuntimeClass", false, "", ""},
	{"policy/v1", "poddisruptionbudgets", "pdb", "PodDisruptionBudget", true, "status", ""},
	{"rbac.authorization.k8s.io/v1", "clusterrolebindings", "", "ClusterRoleBinding", false, "", ""},
	{"rbac.authorization.k8s.io/v1", "clusterroles", "", "ClusterRole", false, "", ""},
	{"rbac.authorization.k8s.io/v1", "rolebindings", "", "RoleBinding", true, "", ""},
	{"rbac.authorization.k8s.io/v1", "roles", "", "Role", true, "", ""},
	{"resource.k8s.io/v1", "deviceclasses", "", "DeviceClass", false, "", ""},
	{"resource.k8s.io/v1", "resourceclaims", "", "ResourceClaim", true, "status", ""},
	{"resource.k8s.io/v1", "resourceclaimtemplates", "", "ResourceClaimTemplate", true, "", ""},
	{"resource.k8s.io/v1", "resourceslices", "", "ResourceSlice", false, "", ""},
	{"scheduling.k8s.io/v1", "priorityclasses", "pc", "PriorityClass", false, "", ""},
	{"storage.k8s.io/v1", "csidrivers", "", "CSIDriver", false, "", ""},
	{"storage.k8s.io/v1", "csinodes", "", "CSINode", false, "", ""},
	{"storage.k8s.io/v1", "csistoragecapacities", "", "CSIStorageCapacity", true, "", ""},
	{"storage.k8s.io/v1", "storageclasses", "sc", "StorageClass", false, "", ""},
	{"storage.k8s.io/v1", "volumeattachments", "", "VolumeAttachment", false, "status", ""},
	{"storagemigration.k8s.io/v1", "storageversionmigrations", "", "StorageVersionMigration", false, "status", ""},
}

func TestDiscoveryShowsEveryKind(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	_, lists, err := c.typed.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	type shown struct {
		metav1.APIResource
		subresources []string
	}
	found := map[string]*shown{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if parent, sub, ok := strings.Cut(r.Name, "/"); ok {
				found[list.GroupVersion+"/"+parent].subresources = append(found[list.GroupVersion+"/"+parent].subresources, sub)
				continue
			}
			found[list.GroupVersion+"/"+r.Name] = &shown{APIResource: r}
		}
	}
	for _, want := range builtinKinds {
		got, ok := found[want.groupVersion+"/"+want.resource]
		if !ok {
			t.Errorf("%s %s is missing", want.groupVersion, want.resource)
			continue
		}
		if got.Kind != want.kind || got.Namespaced != want.namespaced || strings.Join(got.ShortNames, ",") != want.short ||
			strings.Join(got.subresources, ",") != want.subresources || strings.Join(got.Categories, ",") != want.category {
			t.Errorf("%s %s is %+v", want.groupVersion, want.resource, got)
		}
		if singular := strings.ToLower(want.kind); got.SingularName != singular {
			t.Errorf("%s %s has the singular name %q, want %q", want.groupVersion, want.resource, got.SingularName, singular)
		}
	}
	// and CustomResourceDefinitions; other tests' kinds are gone or not there yet
	if n := len(builtinKinds) + 1; len(found) != n {
		t.Logf("discovery shows %d resources besides the built-in %d", len(found)-n, n)
	}
}

var (
	someLabels   = map[string]any{"a": "b"}
	someReplicas = map[string]any{"selector": map[string]any{"matchLabels": someLabels},
		"template": someTemplate("Always")}
)

func somePods(restart string) map[string]any {
	return map[string]any{"restartPolicy": restart, "containers": []any{map[string]any{"name": "c", "image": "c"}}}
}

func someTemplate(restart string) map[string]any {
	return map[string]any{"metadata": map[string]any{"labels": someLabels}, "spec": somePods(restart)}
}

// required has the fields that an object of a kind must have.
var required = map[string]map[string]any{
	"EndpointSlice": {"addressType": "IPv4"},
	"PriorityClass": {"value": int64(10)},
	"RuntimeClass":  {"handler": "runc"},
	"StorageClass":  {"provisioner": "example.com/none"},
	"Service":       {"spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}},

	"PersistentVolume": {"spec": map[string]any{
		"accessModes": []any{"ReadWriteOnce"}, "capacity": map[string]any{"storage": "1Gi"},
		"hostPath": map[string]any{"path": "/a"},
	}},
	"PersistentVolumeClaim": {"spec": map[string]any{
		"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
	}},
	"Ingress": {"spec": map[string]any{
		"defaultBackend": map[string]any{"service": map[string]any{"name": "s", "port": map[string]any{"number": int64(80)}}},
	}},
	"HorizontalPodAutoscaler": {"spec": map[string]any{
		"maxReplicas": int64(1), "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
	}},

	"Pod":                   {"spec": somePods("Always")},
	"PodTemplate":           {"template": someTemplate("Always")},
	"ReplicationController": {"spec": map[string]any{"selector": someLabels, "template": someTemplate("Always")}},
	"Deployment":            {"spec": someReplicas},
	"ReplicaSet":            {"spec": someReplicas},
	"StatefulSet":           {"spec": someReplicas},
	"DaemonSet":             {"spec": someReplicas},
	"Job":                   {"spec": map[string]any{"template": someTemplate("Never")}},
	"CronJob": {"spec": map[string]any{"schedule": "0 0 * * *", "jobTemplate": map[string]any{
		"spec": map[string]any{"template": someTemplate("Never")},
	}}},

	"FlowSchema": {"spec": map[string]any{"priorityLevelConfiguration": map[string]any{"name": "exempt"}}},
	"PriorityLevelConfiguration": {"spec": map[string]any{"type": "Limited", "limited": map[string]any{
		"limitResponse": map[string]any{"type": "Reject"},
	}}},
	"StorageVersionMigration": {"spec": map[string]any{"resource": map[string]any{"resource": "secrets"}}},
	"APIService": {"spec": map[string]any{"group": "kind-test", "version": "v1",
		"groupPriorityMinimum": int64(1), "versionPriority": int64(1)}},

	"RoleBinding":        {"roleRef": map[string]any{"kind": "Role", "name": "a"}},
	"ClusterRoleBinding": {"roleRef": map[string]any{"kind": "ClusterRole", "name": "a"}},
}

func TestEveryKindIsStored(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	request, _ := signingRequest(t, "", pkix.Name{CommonName: "jane"})
	signing := must(runtime.DefaultUnstructuredConverter.ToUnstructured(request))(t)
	for _, kind := range builtinKinds {
		t.Run(kind.groupVersion+"/"+kind.resource, func(t *testing.T) {
			t.Parallel()
			gv, _ := schema.ParseGroupVersion(kind.groupVersion)
			resource := dynamic.ResourceInterface(c.dynamic.Resource(gv.WithResource(kind.resource)))
			if kind.namespaced {
				resource = c.dynamic.Resource(gv.WithResource(kind.resource)).Namespace(newNamespace(t, c))
			}
			obj := &unstructured.Unstructured{Object: map[string]any{}}
			for field, value := range required[kind.kind] {
				obj.Object[field] = value
			}
			if kind.resource == "certificatesigningrequests" {
				obj.Object["spec"] = signing["spec"]
			}
			obj.SetAPIVersion(kind.groupVersion)
			obj.SetKind(kind.kind)
			obj.SetName("kind-test-" + strings.ReplaceAll(kind.groupVersion, "/", "-"))
			if kind.resource == "apiservices" {
				obj.SetName("v1.kind-test")
			}
			obj.SetLabels(map[string]string{"kind-test": "yes"})
			lifecycle(t, resource, obj)
		})
	}
}

// lifecycle creates, reads, lists, watches, updates and deletes one object.
func lifecycle(t *testing.T, resource dynamic.ResourceInterface, obj *unstructured.Unstructured) {
	ctx := t.Context()
	created := must(resource.Create(ctx, obj, metav1.CreateOptions{}))(t)
	if created.GetUID() == "" || created.GetResourceVersion() == "" || created.GetCreationTimestamp() == (metav1.Time{}) ||
		len(created.GetManagedFields()) == 0 {
		t.Fatalf("the created object lacks what the server sets: %v", created.Object)
	}
	if _, err := resource.Create(ctx, obj, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("creating it again: %v", err)
	}
	got := must(resource.Get(ctx, obj.GetName(), metav1.GetOptions{}))(t)
	if got.GetUID() != created.GetUID() || got.GetKind() != obj.GetKind() || got.GetAPIVersion() != obj.GetAPIVersion() {
		t.Errorf("got another object: %v", got.Object)
	}
	events := must(resource.Watch(ctx, metav1.ListOptions{ResourceVersion: created.GetResourceVersion(),
		FieldSelector: "metadata.name=" + obj.GetName()}))(t)
	defer events.Stop()

	got.SetAnnotations(map[string]string{"changed": "yes"})
	updated := must(resource.Update(ctx, got, metav1.UpdateOptions{}))(t)
	got.SetAnnotations(map[string]string{"changed": "late"})
	if _, err := resource.Update(ctx, got, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("updating an old version: %v", err)
	}
	list := must(resource.List(ctx, metav1.ListOptions{LabelSelector: "kind-test=yes", FieldSelector: "metadata.name=" +
		obj.GetName()}))(t)
	if len(list.Items) != 1 || list.Items[0].GetResourceVersion() != updated.GetResourceVersion() {
		t.Errorf("the list has %v", list.Items)
	}
	if err := resource.Delete(ctx, obj.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "the object is gone", func() (bool, string) {
		_, err := resource.Get(ctx, obj.GetName(), metav1.GetOptions{})
		return apierrors.IsNotFound(err), "it is still there"
	})
	expectEvent(t, events, watch.Modified)
	expectEvent(t, events, watch.Deleted)
}

// expectEvent reads events up to one of that type, whose object it returns.
func expectEvent(t *testing.T, events watch.Interface, want watch.EventType) metav1.Object {
	t.Helper()
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			t.Fatalf("the watch failed: %v", event.Object)
		}
		if event.Type == want {
			return event.Object.(metav1.Object)
		}
	}
	t.Fatalf("the watch ended before an event %s", want)
	return nil
}
