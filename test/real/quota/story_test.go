package quota

import (
	"context"
	"fmt"
	"math/rand/v2"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var gears = schema.GroupVersionResource{Group: "quota.example.com", Version: "v1", Resource: "gears"}

var never = corev1.PreemptNever

// classes are the priority classes of the story.
var classes = []schedulingv1.PriorityClass{
	{ObjectMeta: metav1.ObjectMeta{Name: "low"}, Value: -5, GlobalDefault: true},
	{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000, PreemptionPolicy: &never},
}

// defaultClass is the class of pods that name none.
const defaultClass = "low"

// story is what exists, and how it changes.
type story struct {
	random *rand.Rand
	sides  []side
	model  model
	limits []*limit
	serial int
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (s *story) name(kind string) string {
	s.serial++
	return fmt.Sprintf("%s-%d", kind, s.serial)
}

// draw returns a random step.
func (s *story) draw() step {
	r := s.random
	switch n := r.IntN(40); {
	case n < 4 && len(s.limits) < 6:
		return s.createLimit()
	case n < 5 && len(s.limits) > 1:
		return s.deleteLimit()
	case n < 8 && len(s.limits) > 0:
		return s.changeLimit()
	case n < 18:
		return s.createPod()
	case n < 21 && len(s.model.of("pods")) > 0:
		return s.endPod()
	case n < 22 && len(s.model.of("pods")) > 0:
		return s.moveToTerminating()
	case n < 25:
		return s.createService()
	case n < 27 && len(s.model.of("services")) > 0:
		return s.changeService()
	case n < 29:
		return s.createClaim()
	case n < 33:
		return s.createPlain()
	case n < 34:
		return s.createClass()
	default:
		return s.delete()
	}
}

// unscoped are names of quotas without a scope, and the largest limits to draw.
var unscoped = []struct {
	name  corev1.ResourceName
	limit int
	unit  string
}{
	{"pods", 12, ""}, {"count/pods", 25, ""}, {"cpu", 40, "00m"}, {"requests.cpu", 40, "00m"}, {"limits.cpu", 80, "00m"},
	{"memory", 40, "00Mi"}, {"requests.memory", 40, "00Mi"}, {"limits.memory", 80, "00Mi"},
	{"requests.ephemeral-storage", 30, "00Mi"}, {"limits.ephemeral-storage", 40, "00Mi"},
	{"requests.example.com/gpu", 6, ""}, {"requests.hugepages-2Mi", 10, "0Mi"},
	{"services", 6, ""}, {"count/services", 6, ""}, {"services.nodeports", 8, ""}, {"services.loadbalancers", 3, ""},
	{"persistentvolumeclaims", 6, ""}, {"count/persistentvolumeclaims", 6, ""}, {"requests.storage", 30, "Gi"},
	{"gold.storageclass.storage.k8s.io/requests.storage", 20, "Gi"},
	{"gold.storageclass.storage.k8s.io/persistentvolumeclaims", 4, ""},
	{"configmaps", 5, ""}, {"count/configmaps", 5, ""}, {"secrets", 4, ""}, {"count/secrets", 4, ""},
	{"replicationcontrollers", 3, ""},
	{"resourcequotas", 7, ""}, {"count/resourcequotas", 7, ""}, {"count/deployments.apps", 3, ""},
	{"count/gears.quota.example.com", 3, ""},
	{"count/serviceaccounts", 3, ""},
}

// scoped are names that quotas with a scope may have.
const scoped = 8

func (s *story) hard(names int) corev1.ResourceList {
	r, hard := s.random, corev1.ResourceList{}
	for range 1 + r.IntN(4) {
		drawn := unscoped[r.IntN(names)]
		hard[drawn.name] = resource.MustParse(fmt.Sprint(r.IntN(drawn.limit+1)) + drawn.unit)
	}
	return hard
}

// createLimit creates a quota, in a third of all cases with a scope.
func (s *story) createLimit() step {
	r := s.random
	l := &limit{name: s.name("quota"), hard: s.hard(len(unscoped))}
	spec := corev1.ResourceQuotaSpec{Hard: l.hard}
	switch r.IntN(6) {
	case 0:
		l.scope = pick(r, corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
			corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeBestEffort)
		l.hard = corev1.ResourceList{"pods": resource.MustParse(fmt.Sprint(r.IntN(6)))}
		if l.scope != corev1.ResourceQuotaScopeBestEffort {
			l.hard = s.hard(scoped)
		}
		spec = corev1.ResourceQuotaSpec{Hard: l.hard, Scopes: []corev1.ResourceQuotaScope{l.scope}}
	case 1:
		l.hard = s.hard(scoped)
		l.classes = &corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopePriorityClass,
			Operator: pick(r, corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn)}
		if l.classes.Operator != corev1.ScopeSelectorOpExists {
			l.classes.Values = []string{pick(r, "low", "high")}
		}
		spec = corev1.ResourceQuotaSpec{Hard: l.hard,
			ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{*l.classes}}}
	}
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: l.name}, Spec: spec}
	o := &object{resource: "resourcequotas", name: l.name, uses: uses("resourcequotas", 1, "count/resourcequotas", 1)}
	return step{
		what: fmt.Sprintf("limit %s: %+v", l.name, spec),
		do: func(ctx context.Context, server side) error {
			_, err := server.CoreV1().ResourceQuotas(home).Create(ctx, q, metav1.CreateOptions{})
			return err
		},
		undo: func(ctx context.Context, server side) error {
			return server.CoreV1().ResourceQuotas(home).Delete(ctx, l.name, metav1.DeleteOptions{})
		},
		done: func() {
			s.limits = append(s.limits, l)
			s.model.add(o)
		},
	}
}

func (s *story) deleteLimit() step {
	i := s.random.IntN(len(s.limits))
	l := s.limits[i]
	return step{
		what: "delete " + l.name,
		do: func(ctx context.Context, server side) error {
			return server.CoreV1().ResourceQuotas(home).Delete(ctx, l.name, metav1.DeleteOptions{})
		},
		done: func() {
			s.limits = append(s.limits[:i:i], s.limits[i+1:]...)
			s.model.remove(&object{resource: "resourcequotas", name: l.name})
		},
	}
}

// changeLimit gives a quota other limits, in half of all cases of other resources.
func (s *story) changeLimit() step {
	r := s.random
	l := pick(r, s.limits...)
	hard := corev1.ResourceList{}
	for name, quantity := range l.hard {
		quantity.Set(quantity.Value() + int64(r.IntN(3)))
		hard[name] = quantity
	}
	if l.scope == "" && l.classes == nil && r.IntN(2) == 0 {
		hard = s.hard(len(unscoped))
	}
	return step{
		what: fmt.Sprintf("change %s to %v", l.name, hard),
		do: func(ctx context.Context, server side) error {
			for {
				q, err := server.CoreV1().ResourceQuotas(home).Get(ctx, l.name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				q.Spec.Hard = hard
				_, err = server.CoreV1().ResourceQuotas(home).Update(ctx, q, metav1.UpdateOptions{})
				if !apierrors.IsConflict(err) { // with the controller
					return err
				}
			}
		},
		done: func() { l.hard = hard },
	}
}

// createPod creates a pod: some without resources, with a class that does not exist, or with another priority than its
// class.
func (s *story) createPod() step {
	r := s.random
	o := &object{resource: "pods", name: s.name("pod"), class: pick(r, "", "", "", "high", "low"),
		uses: uses("pods", 1, "count/pods", 1)}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: o.name},
		Spec:       corev1.PodSpec{PriorityClassName: o.class, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	c := &pod.Spec.Containers[0]
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	if r.IntN(8) > 0 {
		for _, compute := range []struct{ name, unit string }{{"cpu", "m"}, {"memory", "Mi"}, {"ephemeral-storage", "Mi"}} {
			request := 100 * r.IntN(6)
			quantity := resource.MustParse(fmt.Sprint(request) + compute.unit)
			name := corev1.ResourceName(compute.name)
			if compute.name != "ephemeral-storage" || r.IntN(2) == 0 {
				requests[name] = quantity
			}
			if r.IntN(4) > 0 {
				quantity = resource.MustParse(fmt.Sprint(request+100*r.IntN(4)) + compute.unit)
				limits[name] = quantity
				if _, ok := requests[name]; !ok {
					requests[name] = quantity // the default
				}
			}
		}
		for _, name := range []corev1.ResourceName{"example.com/gpu", "hugepages-2Mi"} {
			if r.IntN(5) == 0 {
				quantity := resource.MustParse(fmt.Sprint(2 * (1 + r.IntN(3))))
				if name != "example.com/gpu" {
					quantity = resource.MustParse(fmt.Sprint(2*(1+r.IntN(8))) + "Mi")
				}
				requests[name], limits[name] = quantity, quantity
			}
		}
	}
	c.Resources = corev1.ResourceRequirements{Requests: requests, Limits: limits}
	for name, quantity := range requests {
		o.uses["requests."+name] = quantity.MilliValue()
		if name != "example.com/gpu" {
			o.uses[name] = quantity.MilliValue()
		}
	}
	for name, quantity := range limits {
		o.uses["limits."+name] = quantity.MilliValue()
	}
	o.bestEffort = isZero(requests, "cpu", "memory") && isZero(limits, "cpu", "memory")
	if r.IntN(4) == 0 {
		pod.Spec.ActiveDeadlineSeconds, o.terminating = new(int64(1000)), true
	}
	if r.IntN(6) == 0 {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: pick(r, corev1.TaintNodeNotReady, "", "other"),
			Operator: corev1.TolerationOpExists, Effect: pick(r, corev1.TaintEffectNoExecute, "", corev1.TaintEffectNoSchedule)}}
	}
	if o.class == "" {
		o.class = defaultClass
	}
	switch r.IntN(12) {
	case 0:
		pod.Spec.PriorityClassName = "missing"
	case 1:
		pod.Spec.Priority = pick(r, new(int32(-5)), new(int32(1000)), new(int32(7)))
	case 2:
		pod.Spec.PreemptionPolicy = pick(r, new(corev1.PreemptNever), new(corev1.PreemptLowerPriority))
	case 3:
		pod.Spec.PriorityClassName, o.class = "system-node-critical", "system-node-critical"
	}
	return s.creation(o, fmt.Sprintf("%+v", pod.Spec), func(ctx context.Context, server side) error {
		_, err := server.CoreV1().Pods(home).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

func isZero(list corev1.ResourceList, names ...corev1.ResourceName) bool {
	for _, name := range names {
		if quantity, ok := list[name]; ok && !quantity.IsZero() {
			return false
		}
	}
	return true
}

// creation is a step that creates an object.
func (s *story) creation(o *object, spec string, do func(context.Context, side) error) step {
	return step{
		what: fmt.Sprintf("create %s/%s: %s", o.resource, o.name, spec),
		do:   do,
		undo: func(ctx context.Context, server side) error { return remove(ctx, server, o) },
		done: func() { s.model.add(o) },
	}
}

// endPod lets a pod succeed or fail.
func (s *story) endPod() step {
	o := pick(s.random, s.model.of("pods")...)
	phase := pick(s.random, corev1.PodSucceeded, corev1.PodFailed)
	return step{
		what: fmt.Sprintf("end %s: %s", o.name, phase),
		do: func(ctx context.Context, server side) error {
			patch := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)
			_, err := server.CoreV1().Pods(home).Patch(ctx, o.name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			return err
		},
		done: func() { o.ended = true },
	}
}

// moveToTerminating gives a pod a deadline, which moves it to another scope.
func (s *story) moveToTerminating() step {
	o := pick(s.random, s.model.of("pods")...)
	return step{
		what: "move " + o.name,
		do: func(ctx context.Context, server side) error {
			_, err := server.CoreV1().Pods(home).Patch(ctx, o.name, types.MergePatchType,
				[]byte(`{"spec":{"activeDeadlineSeconds":900}}`), metav1.PatchOptions{})
			return err
		},
		done: func() { o.terminating = true },
	}
}

// serviceUses returns what a service with ports uses.
func serviceUses(kind corev1.ServiceType, ports int) map[corev1.ResourceName]int64 {
	nodePorts, balancers := 0, 0
	if kind != corev1.ServiceTypeClusterIP {
		nodePorts = ports
	}
	if kind == corev1.ServiceTypeLoadBalancer {
		balancers = 1
	}
	return uses("services", 1, "count/services", 1, "services.nodeports", nodePorts, "services.loadbalancers", balancers)
}

var serviceTypes = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort,
	corev1.ServiceTypeLoadBalancer}

func (s *story) createService() step {
	r := s.random
	kind, ports := pick(r, serviceTypes...), 1+r.IntN(3)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: s.name("service")},
		Spec: corev1.ServiceSpec{Type: kind}}
	for i := range ports {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(80 + i)})
	}
	o := &object{resource: "services", name: service.Name, uses: serviceUses(kind, ports)}
	if kind == corev1.ServiceTypeLoadBalancer && r.IntN(3) == 0 {
		service.Spec.AllocateLoadBalancerNodePorts = new(false)
		o.uses["services.nodeports"] = 0
	}
	return s.creation(o, fmt.Sprintf("%s, %d ports", kind, ports), func(ctx context.Context, server side) error {
		_, err := server.CoreV1().Services(home).Create(ctx, service, metav1.CreateOptions{})
		return err
	})
}

// changeService gives a service another type and one port.
func (s *story) changeService() step {
	o := pick(s.random, s.model.of("services")...)
	kind := pick(s.random, serviceTypes...)
	patch := fmt.Appendf(nil, `{"spec":{"type":%q,"allocateLoadBalancerNodePorts":null,"ports":[{"name":"p","port":80}]}}`,
		kind)
	return step{
		what: fmt.Sprintf("change %s to %s", o.name, kind),
		do: func(ctx context.Context, server side) error {
			_, err := server.CoreV1().Services(home).Patch(ctx, o.name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
		done: func() { o.uses = serviceUses(kind, 1) },
	}
}

func (s *story) createClaim() step {
	r := s.random
	class, size := pick(r, "", "gold", "iron"), 1+r.IntN(8)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: s.name("claim")},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse(fmt.Sprint(size) + "Gi")}},
		},
	}
	o := &object{resource: "persistentvolumeclaims", name: claim.Name, uses: uses("persistentvolumeclaims", 1,
		"count/persistentvolumeclaims", 1, "requests.storage", size<<30)}
	if class == "gold" {
		o.uses["gold.storageclass.storage.k8s.io/persistentvolumeclaims"], o.uses["gold.storageclass.storage.k8s.io/requests.storage"] = 1000, int64(size)<<30*1000
	}
	return s.creation(o, fmt.Sprintf("%d Gi of %q", size, class), func(ctx context.Context, server side) error {
		_, err := server.CoreV1().PersistentVolumeClaims(home).Create(ctx, claim, metav1.CreateOptions{})
		return err
	})
}

// createPlain creates an object that counts, and nothing else. Some exist, after which the plugin has counted too many.
func (s *story) createPlain() step {
	r := s.random
	kind := pick(r, "configmaps", "secrets", "replicationcontrollers", "deployments", "gears", "serviceaccounts")
	name := s.name(kind)
	if existing := s.model.of(kind); len(existing) > 0 && r.IntN(12) == 0 {
		name = pick(r, existing...).name
	}
	o := &object{resource: kind, name: name}
	labels := map[string]string{"app": "a"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	of := metav1.ObjectMeta{Name: name}
	var do func(context.Context, side) error
	switch kind {
	case "deployments":
		o.uses = uses("count/deployments.apps", 1)
		do = func(ctx context.Context, server side) error {
			d := &appsv1.Deployment{ObjectMeta: of,
				Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}
			_, err := server.AppsV1().Deployments(home).Create(ctx, d, metav1.CreateOptions{})
			return err
		}
	case "gears":
		o.uses = uses("count/gears.quota.example.com", 1)
		do = func(ctx context.Context, server side) error {
			gear := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gears.GroupVersion().String(),
				"kind": "Gear", "metadata": map[string]any{"name": name}}}
			_, err := server.custom.Create(ctx, gear, metav1.CreateOptions{})
			return err
		}
	default:
		o.uses = uses(kind, 1, "count/"+kind, 1)
		do = func(ctx context.Context, server side) error {
			var err error
			switch kind {
			case "configmaps":
				_, err = server.CoreV1().ConfigMaps(home).Create(ctx, &corev1.ConfigMap{ObjectMeta: of}, metav1.CreateOptions{})
			case "secrets":
				_, err = server.CoreV1().Secrets(home).Create(ctx, &corev1.Secret{ObjectMeta: of}, metav1.CreateOptions{})
			case "serviceaccounts":
				_, err = server.CoreV1().ServiceAccounts(home).Create(ctx, &corev1.ServiceAccount{ObjectMeta: of},
					metav1.CreateOptions{})
			case "replicationcontrollers":
				rc := &corev1.ReplicationController{ObjectMeta: of, Spec: corev1.ReplicationControllerSpec{Selector: labels,
					Template: &template}}
				_, err = server.CoreV1().ReplicationControllers(home).Create(ctx, rc, metav1.CreateOptions{})
			}
			return err
		}
	}
	created := s.creation(o, "", do)
	if s.model[kind+"/"+name] != nil {
		created.undo = nil
	}
	return created
}

// createClass creates a priority class that the servers refuse.
func (s *story) createClass() step {
	r := s.random
	class := pick(r,
		schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "second"}, Value: 1, GlobalDefault: true},
		schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "system-own"}, Value: 1},
		schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "over"}, Value: 1000000001},
		schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "odd"}, Value: 3,
			PreemptionPolicy: new(corev1.PreemptionPolicy("Sometimes"))},
	)
	return step{
		what: "refuse the class " + class.Name,
		do: func(ctx context.Context, server side) error {
			_, err := server.SchedulingV1().PriorityClasses().Create(ctx, class.DeepCopy(), metav1.CreateOptions{})
			return err
		},
		done: func() { panic(class.Name + " was accepted") },
	}
}

// delete deletes an object of a random resource.
func (s *story) delete() step {
	kind := pick(s.random, "pods", "pods", "services", "persistentvolumeclaims", "configmaps", "secrets",
		"replicationcontrollers", "deployments", "gears", "serviceaccounts")
	var all []*object
	for _, o := range s.model.of(kind) {
		if o.name != "kube-root-ca.crt" && o.name != "default" { // they return
			all = append(all, o)
		}
	}
	if len(all) == 0 {
		return s.createPlain()
	}
	o := pick(s.random, all...)
	return step{
		what: "delete " + kind + "/" + o.name,
		do:   func(ctx context.Context, server side) error { return remove(ctx, server, o) },
		done: func() { s.model.remove(o) },
	}
}

// remove deletes an object from a server, at once and in the background: no garbage collector runs beside
// kube-apiserver.
func remove(ctx context.Context, server side, o *object) error {
	options := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)),
		PropagationPolicy: new(metav1.DeletePropagationBackground)}
	switch o.resource {
	case "pods":
		return server.CoreV1().Pods(home).Delete(ctx, o.name, options)
	case "services":
		return server.CoreV1().Services(home).Delete(ctx, o.name, options)
	case "persistentvolumeclaims":
		return server.CoreV1().PersistentVolumeClaims(home).Delete(ctx, o.name, options)
	case "configmaps":
		return server.CoreV1().ConfigMaps(home).Delete(ctx, o.name, options)
	case "secrets":
		return server.CoreV1().Secrets(home).Delete(ctx, o.name, options)
	case "replicationcontrollers":
		return server.CoreV1().ReplicationControllers(home).Delete(ctx, o.name, options)
	case "deployments":
		return server.AppsV1().Deployments(home).Delete(ctx, o.name, options)
	case "serviceaccounts":
		return server.CoreV1().ServiceAccounts(home).Delete(ctx, o.name, options)
	default:
		return server.custom.Delete(ctx, o.name, options)
	}
}
