package served

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// informer is client-go's informer of pods. It stores only the metadata that it needs,
// so that many fit into a process.
type informer struct {
	cache.SharedIndexInformer
	transport http.RoundTripper
	revision  atomic.Int64
}

func newInformer(config *rest.Config, namespace string, counts *counts) (*informer, error) {
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+
		runtime.ContentTypeJSON
	config.Dial = (&net.Dialer{}).DialContext // a connection of its own, as each process has
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counted{next, counts} })
	inf := &informer{}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	inf.transport = httpClient.Transport
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	pods := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", namespace, fields.Everything())
	inf.SharedIndexInformer = cache.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, nil)
	if err := inf.SetTransform(metadataOnly); err != nil {
		return nil, err
	}
	_, err = inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: inf.record, UpdateFunc: func(_, obj any) { inf.record(obj) },
	})
	return inf, err
}

func metadataOnly(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}}, nil
}

func (i *informer) seen() int64 { return i.revision.Load() }

// note runs on one goroutine.
func (i *informer) record(obj any) {
	object, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	if revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64); err == nil {
		i.revision.Store(max(revision, i.revision.Load()))
	}
}

// awaitSync waits for the initial list.
func (i *informer) waitSynced(ctx context.Context) error {
	for !i.HasSynced() {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (i *informer) run(ctx context.Context) {
	i.RunWithContext(ctx)
	utilnet.CloseIdleConnectionsFor(i.transport)
}

// counted counts the requests of an informer.
type counted struct {
	next   http.RoundTripper
	counts *counts
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	switch {
	case query.Get("watch") == "":
		c.counts.lists.Add(1)
	case query.Get("sendInitialEvents") == "true":
		c.counts.streams.Add(1)
	}
	return c.next.RoundTrip(r)
}

// WrappedRoundTripper returns the next round tripper, to close its connections.
func (c *counted) WrappedRoundTripper() http.RoundTripper { return c.next }
