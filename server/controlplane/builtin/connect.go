package builtin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	genericrest "k8s.io/apiserver/pkg/registry/generic/rest"
	"k8s.io/apiserver/pkg/registry/rest"
)

// containers answers requests for the containers of pods, which never run: with the errors of kube-apiserver as far as
// it asks no kubelet, and then with 400.
type containers struct{ pods, nodes *genericregistry.Store }

// find returns the pod of a name, if it has the container; or exactly one, if the name of the container is empty.
func (c containers) find(ctx context.Context, name, container string) (*corev1.Pod, error) {
	object, err := c.pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod := object.(*corev1.Pod)
	names := containerNames(pod)
	switch {
	case container != "" && !slices.Contains(names, container):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", container, name))
	case container != "" || len(pod.Spec.Containers) == 1:
		return pod, nil
	case len(pod.Spec.Containers) == 0:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s", name))
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s",
			name, names))
	}
}

// containerNames returns the names of all containers of a pod: init containers, containers, ephemeral containers.
func containerNames(pod *corev1.Pod) []string {
	var names []string
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	return names
}

// notRunning returns the error for a pod on a node: that the node does not exist, or that nothing runs there.
func (c containers) notRunning(ctx context.Context, pod *corev1.Pod) error {
	if _, err := c.nodes.Get(about(ctx, corev1.Resource("nodes")), pod.Spec.NodeName, &metav1.GetOptions{}); err != nil {
		return err
	}
	return apierrors.NewBadRequest(
		fmt.Sprintf("the containers of pod %s do not run: this server has no kubelet on node %s", pod.Name,
			pod.Spec.NodeName))
}

// about returns ctx for requests of another resource: a store names that of the context in its errors.
func about(ctx context.Context, resource schema.GroupResource) context.Context {
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{IsResourceRequest: true,
		APIGroup: resource.Group, Resource: resource.Resource})
}

// logREST serves pods/log. The log of a pod without a node is empty.
type logREST struct{ containers }

var (
	_ rest.GetterWithOptions = (*logREST)(nil)
	_ rest.StorageMetadata   = (*logREST)(nil)
	_ rest.Connecter         = (*streamREST)(nil)
)

func (r *logREST) New() runtime.Object { return &corev1.Pod{} }

// Destroy does nothing: the storages are those of the main resources.
func (r *logREST) Destroy() {}

func (r *logREST) ProducesMIMETypes(string) []string { return []string{"text/plain"} }
func (r *logREST) ProducesObject(string) any         { return "" }

func (r *logREST) NewGetOptions() (runtime.Object, bool, string) {
	return &corev1.PodLogOptions{}, false, ""
}

func (r *logREST) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	pod, err := r.find(ctx, name, options.(*corev1.PodLogOptions).Container)
	if err != nil {
		return nil, err
	}
	if pod.Spec.NodeName == "" {
		return &genericrest.LocationStreamer{ContentType: "text/plain"}, nil
	}
	return nil, r.notRunning(ctx, pod)
}

// streamREST serves pods/exec, pods/attach and pods/portforward.
type streamREST struct {
	containers
	options runtime.Object // an empty one
}

func (r *streamREST) New() runtime.Object { return r.options.DeepCopyObject() }

// Destroy does nothing: the storages are those of the main resources.
func (r *streamREST) Destroy() {}

func (r *streamREST) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

func (r *streamREST) NewConnectOptions() (runtime.Object, bool, string) { return r.New(), false, "" }

// Connect always returns an error.
func (r *streamREST) Connect(ctx context.Context, name string, options runtime.Object,
	_ rest.Responder) (http.Handler, error) {
	var pod *corev1.Pod
	var err error
	switch o := options.(type) {
	case *corev1.PodExecOptions:
		pod, err = r.find(ctx, name, o.Container)
	case *corev1.PodAttachOptions:
		pod, err = r.find(ctx, name, o.Container)
	default: // of a port, no container is asked
		var object runtime.Object
		if object, err = r.pods.Get(ctx, name, &metav1.GetOptions{}); err == nil {
			pod = object.(*corev1.Pod)
		}
	}
	if err != nil {
		return nil, err
	}
	if pod.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", name))
	}
	return nil, r.notRunning(ctx, pod)
}

// addConnectOptions registers how the parameters of these requests are read: of all, only the container matters.
func addConnectOptions(scheme *runtime.Scheme) error {
	for options, container := range map[runtime.Object]func(any) *string{
		&corev1.PodLogOptions{}:         func(o any) *string { return &o.(*corev1.PodLogOptions).Container },
		&corev1.PodExecOptions{}:        func(o any) *string { return &o.(*corev1.PodExecOptions).Container },
		&corev1.PodAttachOptions{}:      func(o any) *string { return &o.(*corev1.PodAttachOptions).Container },
		&corev1.PodPortForwardOptions{}: func(any) *string { return new(string) },
	} {
		err := scheme.AddConversionFunc((*url.Values)(nil), options, func(from, to any, _ conversion.Scope) error {
			*container(to) = from.(*url.Values).Get("container")
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
