package builtin

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/versioning"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Registry has the built-in kinds for the API machinery: their Go types by group, version and kind,
// with conversions, defaults and field labels. It is immutable.
type Registry struct {
	Scheme *runtime.Scheme
	Codecs serializer.CodecFactory
}

// NewRegistry returns a registry of all kinds in the table.
func NewRegistry() (*Registry, error) {
	scheme, err := PublicScheme()
	if err != nil {
		return nil, err
	}
	for _, add := range []func(*runtime.Scheme) error{addHubTypes, addFieldLabels, addDefaults, addEventConversions,
		addAutoscalerConversions, addStorageMigrationConversion, addEvictionConversion, addConnectOptions} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return &Registry{Scheme: scheme, Codecs: serializer.NewCodecFactory(scheme)}, nil
}

// PublicScheme returns a scheme of the types that clients see.
func PublicScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme, apiregistrationv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		autoscalingv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme, certificatesv1.AddToScheme,
		coordinationv1.AddToScheme, discoveryv1.AddToScheme, eventsv1.AddToScheme, flowcontrolv1.AddToScheme,
		networkingv1.AddToScheme, nodev1.AddToScheme,
		policyv1.AddToScheme, rbacv1.AddToScheme, resourcev1.AddToScheme, schedulingv1.AddToScheme, storagev1.AddToScheme,
		storagemigrationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, scheme.SetVersionPriority(autoscalingv2.SchemeGroupVersion, autoscalingv1.SchemeGroupVersion)
}

// addHubTypes registers the Go types of the stored version as internal types of the library, for the
// group of the kind and for that of its second version.
func addHubTypes(scheme *runtime.Scheme) error {
	for _, k := range table {
		for _, gv := range k.served() {
			scheme.AddKnownTypes(hub(gv.Group), k.object, k.list)
		}
	}
	for _, question := range reviews {
		scheme.AddKnownTypes(hub(question.gv.Group), question.object)
	}
	scheme.AddKnownTypes(hub(autoscalingv1.GroupName), &autoscalingv1.Scale{})
	scheme.AddKnownTypes(hub(policyv1.GroupName), &policyv1.Eviction{})
	scheme.AddKnownTypes(hub(authenticationv1.GroupName), &authenticationv1.TokenRequest{},
		&authenticationv1.TokenReview{})
	scheme.AddKnownTypes(hub(corev1.GroupName), &corev1.Binding{}, &corev1.PodLogOptions{}, &corev1.PodExecOptions{},
		&corev1.PodAttachOptions{}, &corev1.PodPortForwardOptions{})
	return nil
}

func hub(group string) schema.GroupVersion {
	return schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}
}

// addFieldLabels registers the selectable fields of the kinds.
func addFieldLabels(scheme *runtime.Scheme) error {
	for _, k := range table {
		if err := scheme.AddFieldLabelConversionFunc(k.gv.WithKind(k.kindName()), k.checkLabel); err != nil {
			return err
		}
		if !k.alias.Empty() {
			if err := scheme.AddFieldLabelConversionFunc(k.alias.WithKind(k.kindName()), k.checkLabel); err != nil {
				return err
			}
		}
	}
	return nil
}

// Stored has the keys and the codec of a built-in resource in storage.
type Stored struct {
	// Prefix is the prefix of keys below the root, as in kube-apiserver.
	Prefix string
	// Codec writes the stored version as protobuf and reads any registered version.
	Codec runtime.Codec
	// GroupVersion is the stored version, and Version selects it.
	GroupVersion schema.GroupVersion
	Version      runtime.GroupVersioner
	// Namespaced reports whether keys below Prefix are namespace/name instead of name.
	Namespaced bool
	// Object is an empty object. It must not be changed.
	Object runtime.Object
}

// Resources returns the resources in the table.
func (r *Registry) Resources() []schema.GroupResource {
	resources := make([]schema.GroupResource, 0, len(table))
	for _, k := range table {
		resources = append(resources, k.groupResource())
	}
	return resources
}

// Stored returns the storage of a resource in the table.
func (r *Registry) Stored(resource schema.GroupResource) (Stored, bool) {
	for _, k := range table {
		if k.groupResource() != resource {
			continue
		}
		info, ok := runtime.SerializerInfoForMediaType(r.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
		if !ok {
			return Stored{}, false
		}
		version := schema.GroupVersions{k.gv}
		codec := versioning.NewDefaultingCodecForScheme(r.Scheme, info.Serializer, r.Codecs.UniversalDeserializer(), version,
			hub(k.gv.Group))
		return Stored{Prefix: k.prefix(), Codec: bareCodec{codec}, GroupVersion: k.gv, Version: version,
			Namespaced: k.namespaced, Object: k.object}, true
	}
	return Stored{}, false
}

// bareCodec decodes objects without apiVersion and kind. The type of the stored version is also the
// internal one, so that the library decodes straight into it and leaves both fields set; but items
// of a list must not show them.
type bareCodec struct{ runtime.Codec }

func (c bareCodec) Decode(data []byte, defaults *schema.GroupVersionKind,
	into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := c.Codec.Decode(data, defaults, into)
	if obj != nil {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return obj, gvk, err
}
