package builtin

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keepwatch/keepwatch/server/controlplane/columns"
)

// replicas has the fields of a kind that its scale subresource shows.
type replicas struct {
	// spec points at the wanted number; nil in the object stands for 1.
	spec func(runtime.Object) **int32
	// status is the observed number.
	status func(runtime.Object) int32
	// selector is the selector of the counted pods, in the form of a query parameter.
	selector func(runtime.Object) (string, error)
}

var (
	deploymentReplicas = &replicas{
		spec:     func(o runtime.Object) **int32 { return &o.(*appsv1.Deployment).Spec.Replicas },
		status:   func(o runtime.Object) int32 { return o.(*appsv1.Deployment).Status.Replicas },
		selector: func(o runtime.Object) (string, error) { return formatSelector(o.(*appsv1.Deployment).Spec.Selector) },
	}
	replicaSetReplicas = &replicas{
		spec:     func(o runtime.Object) **int32 { return &o.(*appsv1.ReplicaSet).Spec.Replicas },
		status:   func(o runtime.Object) int32 { return o.(*appsv1.ReplicaSet).Status.Replicas },
		selector: func(o runtime.Object) (string, error) { return formatSelector(o.(*appsv1.ReplicaSet).Spec.Selector) },
	}
	statefulSetReplicas = &replicas{
		spec:     func(o runtime.Object) **int32 { return &o.(*appsv1.StatefulSet).Spec.Replicas },
		status:   func(o runtime.Object) int32 { return o.(*appsv1.StatefulSet).Status.Replicas },
		selector: func(o runtime.Object) (string, error) { return formatSelector(o.(*appsv1.StatefulSet).Spec.Selector) },
	}
	replicationControllerReplicas = &replicas{
		spec:   func(o runtime.Object) **int32 { return &o.(*corev1.ReplicationController).Spec.Replicas },
		status: func(o runtime.Object) int32 { return o.(*corev1.ReplicationController).Status.Replicas },
		selector: func(o runtime.Object) (string, error) {
			return labels.Set(o.(*corev1.ReplicationController).Spec.Selector).AsSelector().String(), nil
		},
	}
)

func formatSelector(s *metav1.LabelSelector) (string, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "", errors.NewBadRequest(err.Error())
	}
	return selector.String(), nil
}

// scaleREST serves a kind as an autoscaling/v1 Scale.
type scaleREST struct {
	*kind
	store *genericregistry.Store
}

func (r *scaleREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

func (r *scaleREST) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy does nothing: the storage is the main resource's.
func (r *scaleREST) Destroy() {}

func (r *scaleREST) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return columns.For(autoscalingv1.Resource("scales")).ConvertToTable(ctx, object, options)
}

func (r *scaleREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return r.show(obj)
}

func (r *scaleREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	admitUpdate := func(ctx context.Context, obj, old runtime.Object) error {
		newScale, err := r.show(obj)
		if err != nil {
			return err
		}
		oldScale, err := r.show(old)
		if err != nil {
			return err
		}
		return update(ctx, newScale, oldScale)
	}
	obj, _, err := r.store.Update(ctx, name, &scaleUpdate{r, info}, create, admitUpdate, false, options)
	if err != nil {
		return nil, false, err
	}
	scale, err := r.show(obj)
	return scale, false, err
}

// show returns the Scale of an object.
func (r *scaleREST) show(obj runtime.Object) (*autoscalingv1.Scale, error) {
	selector, err := r.replicas.selector(obj)
	if err != nil {
		return nil, err
	}
	wanted := int32(1)
	if n := *r.replicas.spec(obj); n != nil {
		wanted = *n
	}
	m := accessor(obj)
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              m.GetName(),
			Namespace:         m.GetNamespace(),
			UID:               m.GetUID(),
			ResourceVersion:   m.GetResourceVersion(),
			CreationTimestamp: m.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: wanted},
		Status: autoscalingv1.ScaleStatus{Replicas: r.replicas.status(obj), Selector: selector},
	}, nil
}

// scaleUpdate converts an update of a Scale to an update of its object.
type scaleUpdate struct {
	*scaleREST
	info rest.UpdatedObjectInfo
}

func (u *scaleUpdate) Preconditions() *metav1.Preconditions { return u.info.Preconditions() }

func (u *scaleUpdate) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	obj := old.DeepCopyObject()
	m := accessor(obj)
	fields := managedfields.NewScaleHandler(m.GetManagedFields(), u.gv,
		managedfields.ResourcePathMappings{u.gv.String(): fieldpath.MakePathOrDie("spec", "replicas")})
	oldScale, err := u.show(obj)
	if err != nil {
		return nil, err
	}
	if oldScale.ManagedFields, err = fields.ToSubresource(); err != nil {
		return nil, err
	}
	updated, err := u.info.UpdatedObject(ctx, oldScale)
	if err != nil {
		return nil, err
	}
	scale, ok := updated.(*autoscalingv1.Scale)
	if !ok {
		return nil, errors.NewBadRequest(fmt.Sprintf("the object is a %T, not a Scale", updated))
	}
	if err := u.check(scale, m); err != nil {
		return nil, err
	}
	*u.replicas.spec(obj) = &scale.Spec.Replicas
	m.SetResourceVersion(scale.ResourceVersion)
	entries, err := fields.ToParent(scale.ManagedFields)
	if err != nil {
		return nil, err
	}
	m.SetManagedFields(entries)
	return obj, nil
}

// check returns an error for an invalid Scale, or for one of another object of the same name.
func (u *scaleUpdate) check(scale *autoscalingv1.Scale, m metav1.Object) error {
	if n := scale.Spec.Replicas; n < 0 {
		invalid := field.Invalid(field.NewPath("spec", "replicas"), n, "must be greater than or equal to 0")
		return errors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), m.GetName(),
			field.ErrorList{invalid})
	}
	if scale.UID != "" && scale.UID != m.GetUID() {
		//lint:ignore ST1005 the message of kube-apiserver
		mismatch := fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", scale.UID, m.GetUID())
		return errors.NewConflict(schema.GroupResource{Group: u.gv.Group, Resource: u.resource + "/scale"}, m.GetName(),
			mismatch)
	}
	return nil
}
