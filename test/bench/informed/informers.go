package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/clientgo"
)

// makeInformers makes informers of pods.
func makeInformers(cfg *rest.Config, by, form string, count, namespaces int) ([]cache.SharedIndexInformer, error) {
	newInformer := cache.NewSharedIndexInformer
	switch by {
	case "client-go":
	case "hook":
		newInformer = clientgo.NewSharedIndexInformer
	case "direct":
		var direct clientgo.Option
		cfg, direct = clientgo.Direct(cfg)
		newInformer = clientgo.NewGroup(direct).NewSharedIndexInformer
	case "compact":
		var direct clientgo.Option
		cfg, direct = clientgo.Direct(cfg)
		newInformer = clientgo.NewGroup(direct, clientgo.Compact()).NewSharedIndexInformer
	default:
		return nil, fmt.Errorf("informers by %q", by)
	}
	var all []cache.SharedIndexInformer
	for i := range count {
		namespace := ""
		if count > 1 {
			namespace = fmt.Sprintf("team-%03d", i%namespaces)
		}
		example, lw, err := pods(cfg, form, namespace)
		if err != nil {
			return nil, err
		}
		all = append(all, newInformer(lw, example, 0, cache.Indexers{
			cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "app": byApp,
		}))
	}
	return all, nil
}

func byApp(obj any) ([]string, error) {
	return []string{obj.(metav1.Object).GetLabels()["app"]}, nil
}

// pods lists and watches pods in a form, as client-go's clients do.
func pods(cfg *rest.Config, form, namespace string) (runtime.Object, cache.ListerWatcher, error) {
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	switch form {
	case "protobuf":
		lw, err := typed(cfg, scheme.Scheme, runtime.ContentTypeProtobuf, namespace)
		return &corev1.Pod{}, lw, err
	case "json":
		lw, err := typed(cfg, jsonScheme, runtime.ContentTypeJSON, namespace)
		return &Pod{}, lw, err
	case "unstructured":
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return nil, nil, err
		}
		objects := client.Resource(resource).Namespace(namespace)
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}, &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return objects.List(ctx, o)
			},
			WatchFuncWithContext: objects.Watch,
		}, nil
	case "metadata":
		client, err := metadata.NewForConfig(cfg)
		if err != nil {
			return nil, nil, err
		}
		objects := client.Resource(resource).Namespace(namespace)
		return &metav1.PartialObjectMetadata{}, &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return objects.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return objects.Watch(ctx, o)
			},
		}, nil
	}
	return nil, nil, fmt.Errorf("pods as %q", form)
}

func typed(cfg *rest.Config, s *runtime.Scheme, contentType, namespace string) (cache.ListerWatcher, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath, cfg.GroupVersion = "/api", &corev1.SchemeGroupVersion
	cfg.ContentType, cfg.AcceptContentTypes = contentType, contentType
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return cache.NewListWatchFromClient(client, "pods", namespace, fields.Everything()), nil
}

// Pod is a pod as a type that has no protobuf, like those of custom resources.
type Pod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              corev1.PodSpec   `json:"spec,omitempty"`
	Status            corev1.PodStatus `json:"status,omitempty"`
}

type PodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Pod `json:"items"`
}

func (p *Pod) DeepCopyObject() runtime.Object     { c := *p; return &c }
func (l *PodList) DeepCopyObject() runtime.Object { c := *l; return &c }

var jsonScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion, &Pod{}, &PodList{})
	metav1.AddToGroupVersion(s, corev1.SchemeGroupVersion)
	return s
}()
