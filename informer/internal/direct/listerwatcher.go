package direct

import (
	"context"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// listerWatcher returns a ListerWatcher of the resource, which sends the requests that
// client-go's informers send.
func (d *Source) listerWatcher() (*cache.ListWatch, error) {
	all, err := dynamic.NewForConfig(d.cfg)
	if err != nil {
		return nil, err
	}
	client := dynamic.ResourceInterface(all.Resource(d.options.Resource))
	if d.options.Namespace != "" {
		client = all.Resource(d.options.Resource).Namespace(d.options.Namespace)
	}
	selected := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = d.options.Labels, d.options.Fields
		return o
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, selected(o))
			if err != nil {
				return nil, err
			}
			return d.typedList(list), nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, selected(o))
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				e.Object = d.typed(e.Object)
				return e, true
			}), nil
		},
	}, nil
}

// typedList returns a list of objects like the example.
func (d *Source) typedList(list *unstructured.UnstructuredList) *metav1.List {
	typed := &metav1.List{ListMeta: metav1.ListMeta{
		ResourceVersion: list.GetResourceVersion(), Continue: list.GetContinue(),
		RemainingItemCount: list.GetRemainingItemCount(),
	}}
	for i := range list.Items {
		typed.Items = append(typed.Items, runtime.RawExtension{Object: d.typed(&list.Items[i])})
	}
	return typed
}

// typed returns an object like the example. It returns an object that cannot be converted as it is: the
// informer rejects an object of another type, and no other one.
func (d *Source) typed(o runtime.Object) runtime.Object {
	u, ok := o.(*unstructured.Unstructured)
	if _, same := d.example.(*unstructured.Unstructured); !ok || same {
		return o
	}
	typed := reflect.New(reflect.TypeOf(d.example).Elem()).Interface().(runtime.Object)
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed) != nil {
		return o
	}
	return typed
}
