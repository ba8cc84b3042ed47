package operators

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	authuser "k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch"
)

var (
	kubeconfigFlag = flag.String("operators.kubeconfig", "",
		"an administrator of a kube-apiserver with the controllers for garbage and namespaces, which is emptied")
	etcdFlag = flag.String("operators.etcd", "", "the etcd of that kube-apiserver")
)

// HasKubernetes reports whether the flags name a kube-apiserver.
func HasKubernetes() bool { return *kubeconfigFlag != "" }

// OnKubernetes judges on the kube-apiserver of the flags, one run at a time. The returned function ends its clients.
func (o *Options) OnKubernetes() (end func() error, err error) {
	c := &cluster{}
	if c.config, err = clientcmd.BuildConfigFromFlags("", *kubeconfigFlag); err != nil {
		return nil, err
	}
	c.config.QPS = -1
	if c.objects, err = dynamic.NewForConfig(c.config); err != nil {
		return nil, err
	}
	if c.base, err = readObjects(o.CRDs); err != nil {
		return nil, err
	}
	if c.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{*etcdFlag}, Logger: zap.NewNop()}); err != nil {
		return nil, err
	}
	o.Parallel, o.serve = 1, func(t *traffic, _, _ bool) (server, error) { return c.fork(t) }
	return c.etcd.Close, nil
}

// cluster is a kube-apiserver, behind a proxy through which the operator's requests pass.
type cluster struct {
	config  *rest.Config
	objects dynamic.Interface
	etcd    *clientv3.Client
	base    []*unstructured.Unstructured // exist before each run

	front   *httptest.Server
	dropped atomic.Int64 // watches from before this revision are expired
}

func (c *cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

func (c *cluster) UserConfig(string, ...string) (*rest.Config, error) {
	return &rest.Config{Host: c.front.URL, QPS: -1}, nil
}

// Revision returns etcd's.
func (c *cluster) Revision() keepwatch.Revision {
	answer, err := c.etcd.Get(context.Background(), "/", clientv3.WithCountOnly())
	if err != nil {
		panic(fmt.Errorf("the etcd of the flags: %w", err))
	}
	return keepwatch.Revision(answer.Header.Revision)
}

// DropHistory expires watches in the proxy: the watch cache of kube-apiserver keeps what etcd has compacted.
func (c *cluster) DropHistory(context.Context) error {
	c.dropped.Store(int64(c.Revision()))
	return nil
}

func (c *cluster) advance(time.Duration) error { return errors.New("nothing is simulated") }

// past answers lists at resourceVersion 0 from a revision. Watches of the past have no events.
func (c *cluster) past(revision keepwatch.Revision) (*pastReads, error) {
	proxy, err := proxyTo(c.config)
	if err != nil {
		return nil, err
	}
	answer := func(w http.ResponseWriter, q *http.Request) {
		switch infoOf(q).Verb {
		case "watch":
			watchAhead(w, q)
		case "list":
			q = q.Clone(q.Context())
			query := q.URL.Query()
			query.Set("resourceVersion", fmt.Sprint(int64(revision)))
			query.Set("resourceVersionMatch", "Exact")
			q.URL.RawQuery = query.Encode()
			proxy.ServeHTTP(w, q)
		default:
			http.Error(w, "kube-apiserver has no objects of a revision", http.StatusNotImplemented)
		}
	}
	return &pastReads{proxy: http.HandlerFunc(answer), stop: func() error { return nil }, revision: revision}, nil
}

// fork returns the same cluster, with the objects of its base alone.
func (c *cluster) fork(t *traffic) (server, error) {
	if err := c.restore(context.Background()); err != nil {
		return nil, fmt.Errorf("restore the cluster: %w", err)
	}
	fork := &cluster{config: c.config, objects: c.objects, etcd: c.etcd, base: c.base}
	as := rest.CopyConfig(c.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: t.user, Groups: t.groups}
	proxy, err := proxyTo(as)
	if err != nil {
		return nil, err
	}
	proxy.ModifyResponse = func(answer *http.Response) error { return noteRefusal(answer, t) }
	fork.front = httptest.NewServer(fork.identify(t, t.around(fork.expire(proxy))))
	return fork, nil
}

func (c *cluster) close() error {
	c.front.CloseClientConnections()
	c.front.Close()
	return nil
}

// identify adds to each request what a server knows of it behind authentication.
func (c *cluster) identify(t *traffic, next http.Handler) http.Handler {
	resolver := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api")}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		info, err := resolver.NewRequestInfo(q)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx := request.WithUser(request.WithRequestInfo(q.Context(), info),
			&authuser.DefaultInfo{Name: t.user, Groups: t.groups})
		next.ServeHTTP(w, q.WithContext(ctx))
	})
}

// expire refuses watches from before the revision at which the history was dropped.
func (c *cluster) expire(next *httputil.ReverseProxy) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		from, err := strconv.ParseInt(q.URL.Query().Get("resourceVersion"), 10, 64)
		if infoOf(q).Verb == "watch" && err == nil && from > 0 && from < c.dropped.Load() {
			http.Error(w, "too old resource version", http.StatusGone)
			return
		}
		next.ServeHTTP(w, q)
	})
}

// noteRefusal records a request that the operator's roles do not allow. Admission answers with 403, too.
func noteRefusal(answer *http.Response, t *traffic) error {
	if answer.StatusCode != http.StatusForbidden {
		return nil
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	answer.Body = io.NopCloser(strings.NewReader(string(body)))
	if strings.Contains(string(body), fmt.Sprintf(`User \"%s\" cannot `, t.user)) {
		t.refused(answer.Request, answer.StatusCode)
	}
	return nil
}

// home and other are the namespaces of the objects of all runs, and ofRuns are their types.
const (
	home  = "shop"
	other = "store"
)

var ofRuns = []schema.GroupVersionResource{
	{Group: "example.com", Version: "v1", Resource: "widgets"}, {Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "secrets"},
}

// restore deletes the objects of the last run, creates those of the base, and waits until garbage is collected.
func (c *cluster) restore(ctx context.Context) error {
	err := poll(ctx, func() error {
		left := 0
		for _, of := range ofRuns {
			for _, in := range []string{home, other} {
				n, err := c.empty(ctx, of, in)
				if err != nil && !apierrors.IsNotFound(err) {
					return err
				}
				left += n
			}
		}
		if left > 0 {
			return fmt.Errorf("%d objects are left", left)
		}
		for _, o := range c.base {
			if err := c.ensure(ctx, o); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return poll(ctx, func() error { return c.collects(ctx) })
}

// empty deletes the objects of a type in a namespace, also those with finalizers, and returns how many there were.
func (c *cluster) empty(ctx context.Context, of schema.GroupVersionResource, in string) (int, error) {
	api := c.objects.Resource(of).Namespace(in)
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for _, o := range list.Items {
		if len(o.GetFinalizers()) > 0 {
			_, err = api.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
				metav1.PatchOptions{})
		}
		if err == nil {
			err = api.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		}
		if err != nil {
			return 0, err
		}
	}
	return len(list.Items), nil
}

// ensure creates an object of the base, unless it exists. One that is being deleted is an error.
func (c *cluster) ensure(ctx context.Context, o *unstructured.Unstructured) error {
	of := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if o.GetKind() == "CustomResourceDefinition" {
		of = definitions
	}
	have, err := c.objects.Resource(of).Get(ctx, o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = c.objects.Resource(of).Create(ctx, o, metav1.CreateOptions{})
	}
	if err == nil && have.GetDeletionTimestamp() != nil {
		err = fmt.Errorf("%s is being deleted", o.GetName())
	}
	return err
}

// collects returns an error until a child is gone whose owner was deleted. kube-controller-manager learns of new types
// every half minute.
func (c *cluster) collects(ctx context.Context) error {
	owner := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	owner.SetName("collected")
	owners, children := c.objects.Resource(ofRuns[0]).Namespace(home), c.objects.Resource(ofRuns[1]).Namespace(home)
	owner, err := owners.Create(ctx, owner, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	child := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	child.SetName("collected")
	child.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Widget", Name: "collected",
		UID: owner.GetUID()}})
	if _, err = children.Create(ctx, child, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err = owners.Delete(ctx, "collected", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return poll(ctx, func() error {
		if _, err := children.Get(ctx, "collected", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(err, errors.New("garbage is not collected"))
		}
		return nil
	})
}
