package builtin

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func newRegistry(t *testing.T) *Registry {
	t.Helper()
	r, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// row returns the row of an object's type in the table.
func row(t *testing.T, obj runtime.Object) *kind {
	t.Helper()
	for _, k := range table {
		if reflect.TypeOf(k.object) == reflect.TypeOf(obj) {
			return k
		}
	}
	t.Fatalf("%T isn't in the table", obj)
	return nil
}

// Each row of the table fits its Go type; otherwise the server would panic at a request.
func TestRowsFitTheirTypes(t *testing.T) {
	r := newRegistry(t)
	paths := map[string]string{}
	for _, k := range table {
		name := k.groupResource().String()
		for _, gv := range k.served() {
			if !r.Scheme.Recognizes(gv.WithKind(k.kindName())) || !r.Scheme.Recognizes(gv.WithKind(k.kindName()+"List")) {
				t.Errorf("%s isn't registered in %s", k.kindName(), gv)
			}
		}
		if k.status != noStatus && !part(k.newObject(), "Status").IsValid() {
			t.Errorf("%s has no status", name)
		}
		if (k.counts == countSpec || k.counts == countSpecAndAnnotations) && !part(k.newObject(), "Spec").IsValid() {
			t.Errorf("%s has no spec", name)
		}
		if _, set, err := k.attributes(k.newObject()); err != nil || k.indexed != "" && !set.Has(k.indexed) {
			t.Errorf("%s: its index is no field: %v, %v", name, set, err)
		}
		if other := paths[k.prefix()]; other != "" {
			t.Errorf("%s and %s are stored in one place", name, other)
		}
		paths[k.prefix()] = name
		if _, ok := r.Stored(k.groupResource()); !ok {
			t.Errorf("%s isn't stored", name)
		}
	}
}

// An object is equal after encoding and decoding, except its type, which is empty.
func TestStoredObjectsRoundTrip(t *testing.T) {
	r := newRegistry(t)
	for _, k := range table {
		obj := k.newObject()
		accessor(obj).SetName("x")
		stored, _ := r.Stored(k.groupResource())
		data, err := runtime.Encode(stored.Codec, obj)
		if err != nil {
			t.Errorf("%s: %v", k.resource, err)
			continue
		}
		if !strings.HasPrefix(string(data), "k8s\x00") {
			t.Errorf("%s is not stored as protobuf", k.resource)
		}
		into := k.newObject()
		if err := runtime.DecodeInto(stored.Codec, data, into); err != nil {
			t.Errorf("%s: %v", k.resource, err)
		}
		if accessor(into).GetName() != "x" || !into.GetObjectKind().GroupVersionKind().Empty() {
			t.Errorf("%s is decoded as %v %q", k.resource, into.GetObjectKind().GroupVersionKind(), accessor(into).GetName())
		}
	}
}

func TestGenerationCounts(t *testing.T) {
	deployment := &appsv1.Deployment{}
	slice := &discoveryv1.EndpointSlice{}
	for name, test := range map[string]struct {
		obj    runtime.Object
		change func()
		counts bool
	}{
		"nothing":              {deployment, func() {}, false},
		"spec":                 {deployment, func() { deployment.Spec.Paused = true }, true},
		"status":               {deployment, func() { deployment.Status.Replicas = 3 }, false},
		"labels":               {deployment, func() { deployment.Labels = map[string]string{"a": "b"} }, false},
		"annotations":          {deployment, func() { deployment.Annotations = map[string]string{"a": "b"} }, true},
		"a forged generation":  {deployment, func() { deployment.Generation = 99 }, false},
		"a slice's labels":     {slice, func() { slice.Labels = map[string]string{"a": "b"} }, true},
		"a slice's endpoints":  {slice, func() { slice.Endpoints = []discoveryv1.Endpoint{{}} }, true},
		"a slice's finalizers": {slice, func() { slice.Finalizers = []string{"a/b"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			*deployment, *slice = appsv1.Deployment{}, discoveryv1.EndpointSlice{}
			rules := strategy{kind: row(t, test.obj)}
			rules.PrepareForCreate(t.Context(), test.obj)
			old := test.obj.DeepCopyObject()
			test.change()
			rules.PrepareForUpdate(t.Context(), test.obj, old)
			want := int64(1)
			if test.counts {
				want = 2
			}
			if got := accessor(test.obj).GetGeneration(); got != want {
				t.Errorf("generation %d, want %d", got, want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	for _, test := range []struct {
		obj  runtime.Object
		name string
		ok   bool
	}{
		{&corev1.Pod{}, "a.b-c", true}, {&corev1.Pod{}, "A", false},
		{&corev1.Service{}, "1a", true}, {&corev1.Service{}, "a.b", false},
		{&corev1.Namespace{}, "a.b", false},
		{&appsv1.StatefulSet{}, "a.b", false},
		{&rbacv1.ClusterRole{}, "system:Any_thing", true}, {&rbacv1.ClusterRole{}, "a/b", false},
	} {
		k := row(t, test.obj)
		accessor(test.obj).SetName(test.name)
		if k.namespaced {
			accessor(test.obj).SetNamespace("default")
		}
		errs := (strategy{kind: k}).Validate(t.Context(), test.obj)
		errs = slices.DeleteFunc(errs, func(err *field.Error) bool { return !strings.HasPrefix(err.Field, "metadata") })
		if (len(errs) == 0) != test.ok {
			t.Errorf("%s %q: %v", k.resource, test.name, errs)
		}
	}
	finalized := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{"orphan", "a.b/c"}}}
	rules := strategy{kind: row(t, finalized)}
	if errs := rules.Validate(t.Context(), finalized); len(errs) != 0 {
		t.Error(errs)
	}
	finalized.Finalizers = []string{"nonsense"}
	if errs := rules.Validate(t.Context(), finalized); len(errs) != 1 {
		t.Errorf("a finalizer without a domain: %v", errs)
	}
}

// A claim that an earlier version has stored has its source in one field only. It stays changeable, and gets the other
// one.
func TestStoredClaimsStayChangeable(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	claim.Name, claim.Namespace, claim.ResourceVersion = "c", "default", "1"
	rules := strategy{kind: row(t, claim)}
	group := "example.com"
	for _, old := range []corev1.PersistentVolumeClaimSpec{
		{DataSource: &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "Own", Name: "a"}},
		{DataSourceRef: &corev1.TypedObjectReference{APIGroup: &group, Kind: "Own", Name: "a"}},
	} {
		claim.Spec.DataSource, claim.Spec.DataSourceRef = old.DataSource, old.DataSourceRef
		changed := claim.DeepCopy()
		changed.Spec.VolumeName = "v"
		rules.PrepareForUpdate(t.Context(), changed, claim)
		if errs := rules.ValidateUpdate(t.Context(), changed, claim); len(errs) > 0 {
			t.Errorf("%+v: %v", old, errs)
		}
		if s := changed.Spec; s.DataSource == nil || s.DataSourceRef == nil || s.DataSource.Name != "a" ||
			s.DataSourceRef.Name != "a" {
			t.Errorf("%+v has the sources %v and %v", old, s.DataSource, s.DataSourceRef)
		}
	}
}

func TestQOSClass(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu),
			corev1.ResourceMemory: resource.MustParse(memory)}
	}
	full := corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("1", "1Gi")}
	for want, containers := range map[corev1.PodQOSClass][]corev1.ResourceRequirements{
		corev1.PodQOSBestEffort: {{}, {}},
		corev1.PodQOSBurstable:  {full, {}},
		corev1.PodQOSGuaranteed: {full, full},
	} {
		var pod corev1.Pod
		for _, resources := range containers {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: resources})
		}
		pod.Spec.Resources = &corev1.ResourceRequirements{} // counts as none
		if got := qosClass(&pod); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	less := full
	less.Requests = list("500m", "1Gi")
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: less}}}}
	if got := qosClass(&pod); got != corev1.PodQOSBurstable {
		t.Errorf("requests below limits make %s", got)
	}
}

// A pod with resources of its own gets the rest of them from its containers', or its limits. Without any it gets none.
func TestResourcesOfPodsAreCompleted(t *testing.T) {
	for _, c := range []struct{ own, containers, inits, want string }{
		{`{}`, `[{"limits":{"cpu":"1"},"requests":{"cpu":"1"}}]`, `[]`, `{}`},
		{`{"limits":{"cpu":"1","memory":"1Gi"}}`, `[{}]`, `[]`,
			`{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Gi"}}`},
		{`{"limits":{"cpu":"4"}}`, `[{"requests":{"cpu":"1"}},{"requests":{"cpu":"500m","example.com/gpu":"1"}}]`,
			`[{"requests":{"cpu":"2","memory":"1Gi"}}]`, `{"limits":{"cpu":"4"},"requests":{"cpu":"2","memory":"1Gi"}}`},
		{`{"requests":{"cpu":"3"}}`, `[{"limits":{"cpu":"1"}},{"limits":{"cpu":"1"}}]`, `[]`,
			`{"limits":{"cpu":"3"},"requests":{"cpu":"3"}}`},
		{`{"requests":{"cpu":"1"}}`, `[{"limits":{"cpu":"1"}},{"limits":{"cpu":"1"}}]`, `[{"limits":{"cpu":"5"}}]`,
			`{"limits":{"cpu":"5"},"requests":{"cpu":"1"}}`},
		{`{"requests":{"cpu":"1"}}`, `[{"limits":{"cpu":"1"}}]`, `[{}]`, `{"requests":{"cpu":"1"}}`},
		{`{"requests":{"cpu":"1"}}`, `[{"limits":{"hugepages-2Mi":"2Mi"},"requests":{"hugepages-2Mi":"2Mi"}}]`, `[]`,
			`{"limits":{"hugepages-2Mi":"2Mi"},"requests":{"cpu":"1","hugepages-2Mi":"2Mi"}}`},
		{`{"limits":{"example.com/gpu":"1"}}`, `[{}]`, `[]`, `{"limits":{"example.com/gpu":"1"}}`},
	} {
		var pod corev1.PodSpec
		var want corev1.ResourceRequirements
		decode(t, c.own, &pod.Resources)
		decode(t, c.want, &want)
		for text, into := range map[string]*[]corev1.Container{c.containers: &pod.Containers,
			c.inits: &pod.InitContainers} {
			var all []corev1.ResourceRequirements
			decode(t, text, &all)
			for _, resources := range all {
				*into = append(*into, corev1.Container{Resources: resources})
			}
		}
		completePodResources(&pod)
		if !equality.Semantic.DeepEqual(*pod.Resources, want) {
			t.Errorf("%s of %s and %s becomes %+v, want %s", c.own, c.containers, c.inits, *pod.Resources, c.want)
		}
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"nginx": corev1.PullAlways, "nginx:latest": corev1.PullAlways, "host:5000/nginx": corev1.PullAlways,
		"nginx:1": corev1.PullIfNotPresent, "host:5000/nginx:1": corev1.PullIfNotPresent,
		"nginx@sha256:00": corev1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

func TestDefaultsOfJobs(t *testing.T) {
	r := newRegistry(t)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "u"}}
	r.Scheme.Default(job)
	prepareJob(job)
	if *job.Spec.Completions != 1 || *job.Spec.Parallelism != 1 || *job.Spec.BackoffLimit != 6 {
		t.Errorf("the job's spec is %+v", job.Spec)
	}
	for _, label := range []string{batchv1.ControllerUidLabel, batchv1.JobNameLabel} {
		if job.Spec.Template.Labels[label] == "" {
			t.Errorf("the pods' labels are %v", job.Spec.Template.Labels)
		}
	}
	if job.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] != "u" {
		t.Errorf("the selector is %v", job.Spec.Selector)
	}
}

// The fields in the tables of immutable fields exist; otherwise the server would panic at an update.
func TestImmutableFieldsExist(t *testing.T) {
	known := map[string]bool{}
	for _, k := range table {
		known[k.groupResource().String()] = true
		if errs := k.immutable(k.newObject(), k.newObject()); len(errs) > 0 {
			t.Errorf("%s: an update without a change: %v", k.resource, errs)
		}
	}
	for name := range immutableFields {
		if !known[name] {
			t.Errorf("%s is no kind", name)
		}
	}
	for name := range immutableRules {
		if !known[name] {
			t.Errorf("%s is no kind", name)
		}
	}
}
