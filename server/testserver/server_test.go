package testserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/testserver"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(await.Tests(m))
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// connect returns a client whose connections end with the test.
func connect(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client := must(rest.HTTPClientFor(config))(t)
	t.Cleanup(client.CloseIdleConnections)
	return must(kubernetes.NewForConfigAndClient(config, client))(t)
}

func connectDynamic(t testing.TB, config *rest.Config) dynamic.Interface {
	t.Helper()
	client := must(rest.HTTPClientFor(config))(t)
	t.Cleanup(client.CloseIdleConnections)
	return must(dynamic.NewForConfigAndClient(config, client))(t)
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func createMap(t testing.TB, c kubernetes.Interface, name string) *corev1.ConfigMap {
	t.Helper()
	return must(c.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(name), metav1.CreateOptions{}))(t)
}

// names returns the names of the config maps of the tests.
func names(t testing.TB, c kubernetes.Interface) string {
	t.Helper()
	var found []string
	ofTests := metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"}
	for _, m := range must(c.CoreV1().ConfigMaps("default").List(t.Context(), ofTests))(t).Items {
		found = append(found, m.Name)
	}
	return strings.Join(found, " ")
}

// The options create definitions and objects, with the status that they have, before New returns.
func TestOptions(t *testing.T) {
	t.Parallel()
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}, "spec": map[string]any{},
		"status": map[string]any{"ready": true},
	}}
	srv := testserver.New(t, testserver.CRDFiles(os.DirFS("testdata/crds")), testserver.Version("1.34"),
		testserver.Objects(
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
			&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning},
			},
			widget,
		))
	c := connect(t, srv.Config())
	if pod := must(c.CoreV1().Pods("shop").Get(t.Context(), "p",
		metav1.GetOptions{}))(t); pod.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod is %s", pod.Status.Phase)
	}
	made := must(connectDynamic(t, srv.Config()).Resource(widgets).Namespace("default").Get(t.Context(), "w",
		metav1.GetOptions{}))(t)
	size, _, _ := unstructured.NestedInt64(made.Object, "spec", "size")
	if ready, _, _ := unstructured.NestedBool(made.Object, "status", "ready"); size != 3 || !ready {
		t.Errorf("the widget is %v", made.Object)
	}
	if version := must(c.Discovery().ServerVersion())(t); version.GitVersion != "v1.34.0+keepwatch" ||
		version.Minor != "34" {
		t.Errorf("the version is %v", version)
	}
	config := must(clientcmd.BuildConfigFromFlags("", srv.Kubeconfig()))(t)
	must(connect(t, config).CoreV1().Namespaces().Get(t.Context(), "shop", metav1.GetOptions{}))(t)
}

// A definition can be given by the path of its file.
func TestDefinitionByPath(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t, testserver.CRDs("testdata/crds/widgets.yaml"))
	must(connectDynamic(t, srv.Config()).Resource(widgets).List(t.Context(), metav1.ListOptions{}))(t)
}

// Each discovery document has the definitions before New returns: a client that makes its mapper now finds their kinds.
// There are many of them, since the document of the last one is the latest.
func TestDefinitionsAreDiscovered(t *testing.T) {
	t.Parallel()
	const groups = 100
	files := fstest.MapFS{}
	for i := range groups {
		group := fmt.Sprintf("g%d.example.com", i)
		files[group+".yaml"] = &fstest.MapFile{Data: fmt.Appendf(nil, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`, group)}
	}
	srv := testserver.New(t, testserver.CRDFiles(files))
	client := connect(t, srv.Config()).Discovery().RESTClient()
	groupsOf := must(client.Get().AbsPath("/apis").SetHeader("Accept", "application/json").DoRaw(t.Context()))(t)
	for i := range groups {
		group := fmt.Sprintf("g%d.example.com", i)
		if !bytes.Contains(groupsOf, []byte(`"`+group+`"`)) {
			t.Errorf("/apis is without %s", group)
		}
		for _, path := range []string{"/apis/" + group, "/apis/" + group + "/v1"} {
			if err := client.Get().AbsPath(path).Do(t.Context()).Error(); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

// A user has the name and the groups that the test gave.
func TestUsers(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t)
	who := must(connect(t, srv.User("jane", "devs", "ops")).AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t)
	slices.Sort(who.Status.UserInfo.Groups)
	if info := who.Status.UserInfo; info.Username != "jane" ||
		fmt.Sprint(info.Groups) != "[devs ops system:authenticated]" {
		t.Errorf("the user is %v", info)
	}
	stranger := testserver.New(t).User("eve")
	stranger.Host, stranger.CAData = srv.Config().Host, srv.Config().CAData
	if _, err := connect(t, stranger).CoreV1().Namespaces().List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a certificate of another server: %v", err)
	}
}

// Forks begin with the same objects, and are independent.
func TestFork(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t, testserver.CRDs("testdata/crds"))
	c := connect(t, srv.Config())
	first := createMap(t, c, "first")
	fork := srv.Fork(t)
	f := connect(t, fork.Config())
	createMap(t, c, "origin")
	createMap(t, f, "fork")
	if got := names(t, c); got != "first origin" {
		t.Errorf("the first server has %q", got)
	}
	if got := names(t, f); got != "first fork" {
		t.Errorf("the fork has %q", got)
	}
	if same := must(f.CoreV1().ConfigMaps("default").Get(t.Context(), "first",
		metav1.GetOptions{}))(t); same.UID != first.UID || same.ResourceVersion != first.ResourceVersion {
		t.Errorf("the fork has %v", same)
	}
	must(connectDynamic(t, fork.Config()).Resource(widgets).List(t.Context(), metav1.ListOptions{}))(t)
	srv.Close()
	must(connect(t, fork.User("jane")).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}))(t)
}

// follow opens a watch of config maps from a revision.
func follow(t testing.TB, c kubernetes.Interface, from string) watch.Interface {
	t.Helper()
	w := must(c.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: from}))(t)
	t.Cleanup(w.Stop)
	return w
}

// next returns the next event of a watch, in short; "end" at its end.
func next(t testing.TB, w watch.Interface) string {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		switch o := e.Object.(type) {
		case nil:
			if ok {
				t.Fatalf("an event without an object: %v", e)
			}
			return "end"
		case *metav1.Status:
			return fmt.Sprint(e.Type, " ", o.Code)
		case *corev1.ConfigMap:
			return fmt.Sprint(e.Type, " ", o.Name)
		default:
			return fmt.Sprintf("%s %T", e.Type, o)
		}
	case <-time.After(await.Deadline):
		t.Fatal("the watch delivers nothing")
		return ""
	}
}

// After Expire, earlier revisions are gone. A watch that is open continues.
func TestExpire(t *testing.T) {
	t.Parallel()
	for name, option := range map[string][]testserver.Option{"memory": nil, "etcd": {testserver.Etcd()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := testserver.New(t, option...)
			c := connect(t, srv.Config())
			old := createMap(t, c, "a").ResourceVersion
			open := follow(t, c, old)
			createMap(t, c, "b")
			newest := createMap(t, c, "c").ResourceVersion
			srv.Expire()
			if got := next(t, follow(t, c, old)); got != "ERROR 410" {
				t.Errorf("a watch from before: %s", got)
			}
			exact := metav1.ListOptions{ResourceVersion: old, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
			if _, err := c.CoreV1().ConfigMaps("default").List(t.Context(), exact); !apierrors.IsResourceExpired(err) {
				t.Errorf("a list of before: %v", err)
			}
			after := follow(t, c, newest)
			createMap(t, c, "d")
			for _, want := range []string{"ADDED b", "ADDED c", "ADDED d"} {
				if got := next(t, open); got != want {
					t.Errorf("the open watch delivers %s, want %s", got, want)
				}
			}
			if got := next(t, after); got != "ADDED d" {
				t.Errorf("a watch from the newest revision delivers %s", got)
			}
		})
	}
}

// CutWatches breaks open watches, and none that begins later.
func TestCutWatches(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t)
	c := connect(t, srv.Config())
	from := createMap(t, c, "a").ResourceVersion
	w := follow(t, c, from)
	createMap(t, c, "b")
	if got := next(t, w); got != "ADDED b" {
		t.Fatalf("the watch delivers %s", got)
	}
	srv.CutWatches()
	if got := next(t, w); got != "ERROR 500" { // client-go's own, for a response that breaks
		t.Errorf("the cut watch delivers %s", got)
	}
	if got := next(t, w); got != "end" {
		t.Errorf("the cut watch delivers %s after the error", got)
	}
	if got := next(t, follow(t, c, from)); got != "ADDED b" {
		t.Errorf("the next watch delivers %s", got)
	}
}

// After a restart, clients continue with the same configuration from their revisions.
func TestRestart(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t)
	c, config := connect(t, srv.Config()), srv.Config()
	from := createMap(t, c, "a").ResourceVersion
	w := follow(t, c, from)
	createMap(t, c, "b")
	srv.Restart()
	for got := next(t, w); got != "end"; got = next(t, w) {
		if got != "ADDED b" {
			t.Errorf("the watch delivers %s at the restart", got)
		}
	}
	again := connect(t, config)
	if got := next(t, follow(t, again, from)); got != "ADDED b" || srv.Config().Host != config.Host {
		t.Errorf("after the restart at %s the watch delivers %s", srv.Config().Host, got)
	}
}

// After a rewind the later writes are lost. A client that has seen them receives 410, until as many were written again:
// then its revision is accepted, as after a restore of etcd.
func TestRewind(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t)
	c := connect(t, srv.Config())
	createMap(t, c, "a")
	backup := srv.Revision()
	createMap(t, c, "b")
	lost := createMap(t, c, "c").ResourceVersion
	srv.Rewind(backup)
	c = connect(t, srv.Config())
	if got := names(t, c); got != "a" {
		t.Errorf("the server has %q", got)
	}
	if got := next(t, follow(t, c, lost)); got != "ERROR 410" {
		t.Errorf("a watch from a lost revision: %s", got)
	}
	createMap(t, c, "d")
	if got := names(t, c); got != "a d" {
		t.Errorf("the server has %q", got)
	}
	seen, err := keepwatch.ParseRevision(lost)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; srv.Revision() < seen; i++ {
		createMap(t, c, fmt.Sprint("again-", i))
	}
	w := follow(t, c, lost)
	createMap(t, c, "last")
	if got := next(t, w); got != "ADDED last" {
		t.Errorf("a watch from a revision that is used again: %s", got)
	}
}

// A request that is delayed when Fail is called is none of the next ones, also if its client gives up later.
func TestFailuresAreOfLaterRequests(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t)
	maps := connect(t, srv.Config()).CoreV1().ConfigMaps("default")
	srv.Delay(testserver.Verb("list", "configmaps"), time.Hour)
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = maps.List(ctx, metav1.ListOptions{})
	}()
	lists := func() []testserver.Request { return srv.Requests(testserver.Verb("list", "configmaps")) }
	await.True(t, "the list waits", func() bool { return len(lists()) == 1 })
	srv.Fail(nil, 503, 1)
	giveUp()
	await.Receive(t, "the client has given up", ended)
	await.True(t, "the server has ended the list", func() bool { return lists()[0].Status != 0 })
	if _, err := maps.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("the next request: %v", err)
	}
}

// Conflict, Fail and Delay affect the requests that they name, in the number that they name.
func TestRequestFaults(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t)
	c := connect(t, srv.Config())
	made := createMap(t, c, "a")
	srv.Conflict(1)
	srv.Fail(testserver.Verb("get", "configmaps"), 503, 2)
	maps := c.CoreV1().ConfigMaps("default")
	if _, err := maps.Update(t.Context(), made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("the first update: %v", err)
	}
	if _, err := maps.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Errorf("the second update: %v", err)
	}
	get := func() error {
		_, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
		return err
	}
	for range 2 {
		if err := get(); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a request that fails: %v", err)
		}
	}
	if err := get(); err != nil {
		t.Errorf("a request after it: %v", err)
	}
	failed := srv.Requests(func(r testserver.Request) bool { return r.Status == 503 })
	if len(failed) != 2 || failed[0].Name != "a" || failed[0].Verb != "get" || failed[0].User != "keepwatch-admin" {
		t.Errorf("failed requests: %+v", failed)
	}
	if updates := srv.Requests(testserver.Verb("update", "configmaps")); len(updates) != 2 || updates[0].Status != 409 ||
		updates[1].Status != 200 {
		t.Errorf("updates: %+v", updates)
	}
	srv.Delay(testserver.Verb("list", "configmaps"), time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := maps.List(ctx, metav1.ListOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a delayed list: %v", err)
	}
	must(maps.Get(t.Context(), "a", metav1.GetOptions{}))(t)
	srv.Delay(nil, 0)
	srv.Delay(nil, time.Millisecond)
	srv.Fail(nil, 503, 1)
	if _, err := maps.List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a failure of any request: %v", err)
	}
	srv.Delay(func(testserver.Request) bool { srv.Conflict(0); return false }, time.Hour) // it may use the server
	if _, err := maps.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	srv.Delay(nil, 0)
	must(maps.List(t.Context(), metav1.ListOptions{}))(t)
	srv.Delay(testserver.By("jane", testserver.Verb("", "")), time.Hour)
	late := make(chan error, 1)
	go func() {
		_, err := connect(t, srv.User("jane")).CoreV1().Namespaces().List(context.Background(), metav1.ListOptions{})
		late <- err
	}()
	await.True(t, "the request arrives", func() bool {
		return len(srv.Requests(testserver.By("jane", testserver.Verb("list", "namespaces")))) > 0
	})
	srv.Close() // does not wait for the delay
	<-late
}

// TestRefusedRequests checks that requests which authentication or authorization refuses are logged with their answers
// before their clients have those.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t, testserver.RBAC())
	anonymous := rest.AnonymousClientConfig(srv.Config())
	anonymous.BearerToken = "wrong"
	jane, impersonated := srv.User("jane"), rest.CopyConfig(srv.Config())
	impersonated.Impersonate.UserName = "joe"
	for _, c := range []struct {
		config *rest.Config
		user   string
		status int
	}{{anonymous, "", 401}, {jane, "jane", 403}, {impersonated, "joe", 403}} {
		_, err := connect(t, c.config).CoreV1().ConfigMaps("default").Get(t.Context(), "a", metav1.GetOptions{})
		if status := apierrors.APIStatus(nil); !errors.As(err, &status) || int(status.Status().Code) != c.status {
			t.Errorf("%s: %v, want %d", c.user, err, c.status)
		}
		logged := srv.Requests(testserver.By(c.user, testserver.Verb("get", "configmaps")))
		if len(logged) != 1 || logged[0].Status != c.status || logged[0].Namespace != "default" || logged[0].Name != "a" ||
			logged[0].Path != "/api/v1/namespaces/default/configmaps/a" {
			t.Errorf("%s: the log has %+v", c.user, logged)
		}
	}
	must(connect(t, srv.Config()).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}))(t)
	if all := srv.Requests(testserver.Verb("", "configmaps")); len(all) != 4 || all[3].Status != 200 {
		t.Errorf("the log has %+v", all)
	}
}

// Many servers at a time share nothing.
func TestManyServers(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			srv := testserver.New(t)
			c := connect(t, srv.Config())
			createMap(t, c, fmt.Sprint("m", i))
			if got := names(t, c); got != fmt.Sprint("m", i) {
				t.Errorf("server %d has %q", i, got)
			}
		})
	}
	all.Wait()
}

// Storages of deleted definitions end with the server.
func TestDeletedDefinition(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t, testserver.CRDs("testdata/crds"))
	c := connectDynamic(t, srv.Config())
	w := must(c.Resource(widgets).Watch(t.Context(), metav1.ListOptions{}))(t)
	defer w.Stop()
	crds := c.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	must(0, crds.Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}))(t)
	await.True(t, "the definition is gone", func() bool {
		_, err := crds.Get(t.Context(), "widgets.example.com", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	srv.Close()
}

// A user may do what roles allow, on forks, too, and no longer after a rewind to before the role.
func TestRBAC(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t, testserver.RBAC())
	before := srv.Revision()
	admin := connect(t, srv.Config()).RbacV1()
	role := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "jane"}, Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName,
			Name: "devs"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	}
	must(admin.ClusterRoleBindings().Create(t.Context(), role, metav1.CreateOptions{}))(t)
	mayList := func(on *testserver.Server, want bool) {
		t.Helper()
		c := connect(t, on.User("jane", "devs"))
		// A role applies some milliseconds after its creation.
		await.State(t, fmt.Sprint("jane lists: ", want), func() (bool, string) {
			_, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			if err != nil && !apierrors.IsForbidden(err) {
				t.Fatal(err)
			}
			return (err == nil) == want, fmt.Sprint(err)
		})
	}
	mayList(srv, true)
	mayList(srv.Fork(t), true)
	if _, err := connect(t, srv.User("jane", "devs")).CoreV1().Secrets("default").List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("jane lists secrets: %v", err)
	}
	srv.Rewind(before)
	mayList(srv, false)
}
