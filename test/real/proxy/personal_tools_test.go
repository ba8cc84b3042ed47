package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy"
)

// developer is a user who may read three namespaces of forty, each of which has a deployment and a config map, with her
// token at the server and at a proxy with personal views.
type developer struct {
	*rig
	direct, through *rest.Config
	all             int // namespaces
}

// hers are the namespaces of the developer.
var hers = []string{"team-07", "team-08", "team-31"}

const developerName = "developer"

func newDeveloper(t *testing.T) *developer {
	d := &developer{rig: newRig(t, func(_ *rig, c *proxy.Config) { c.Personal = &proxy.Personal{} })}
	_, err := d.admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: developerName},
		Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"", "apps", "batch", "autoscaling"}, Resources: []string{"*"}},
		},
	}, metav1.CreateOptions{})
	d.must(err)
	d.bind(developerName, "get")
	d.must(d.admin.RbacV1().RoleBindings("default").Delete(t.Context(), developerName, metav1.DeleteOptions{}))
	d.direct = rest.AnonymousClientConfig(d.server.Config())
	d.direct.BearerToken = d.token
	d.through = d.configOf(d.front)
	for i := range 40 {
		name := fmt.Sprintf("team-%02d", i)
		_, err := d.admin.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		d.must(err)
		d.deploy(name)
		if slices.Contains(hers, name) {
			d.grant(name)
		}
	}
	list, err := d.admin.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	d.must(err)
	d.all = len(list.Items)
	d.eventually("the proxy follows the grants", func() bool {
		got := d.proxy("/apis/apps/v1/deployments")
		return got.code == http.StatusOK && got.header.Get(proxy.PersonalHeader) == fmt.Sprintf("3/%d", d.all)
	})
	return d
}

// configOf returns the developer's configuration at a proxy.
func (d *developer) configOf(f *front) *rest.Config {
	config := rest.AnonymousClientConfig(f.Config())
	config.Insecure = false
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
	config.BearerToken = d.token
	return config
}

// deploy creates a deployment and a config map, whose names have that of their namespace.
func (d *developer) deploy(namespace string) {
	d.Helper()
	labels := map[string]string{"app": "web"}
	_, err := d.admin.AppsV1().Deployments(namespace).Create(d.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web-" + namespace, Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}},
		}},
	}, metav1.CreateOptions{})
	d.must(err)
	_, err = d.admin.CoreV1().ConfigMaps(namespace).Create(d.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "map-" + namespace}}, metav1.CreateOptions{})
	d.must(err)
}

func (d *developer) grant(namespace string) {
	d.Helper()
	_, err := d.admin.RbacV1().RoleBindings(namespace).Create(d.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: developerName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: developerName}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: developerName},
	}, metav1.CreateOptions{})
	d.must(err)
}

func (d *developer) revoke(namespace string) {
	d.Helper()
	d.must(d.admin.RbacV1().RoleBindings(namespace).Delete(d.Context(), developerName, metav1.DeleteOptions{}))
}

// split runs a command, and returns its stdout and stderr.
func split(command *exec.Cmd) (out, log string, err error) {
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	return stdout.String(), stderr.String(), err
}

// kubectl of a user with three namespaces of forty prints those, where the server refuses: lists, pages, several
// resources, namespaces, and what happens. What the user may do is the server's to say.
func TestPersonalKubectl(t *testing.T) {
	t.Parallel()
	d := newDeveloper(t)
	direct, through := d.kubectl(d.direct), d.kubectl(d.through)
	for _, c := range []struct{ args, want string }{
		{"get deployments -A -o name", "deployment.apps/web-%s\n"},
		{"get deployments -A --chunk-size 2 -o name", "deployment.apps/web-%s\n"},
		{"get deployments,configmaps -A -l app=web -o name", "deployment.apps/web-%s\n"},
		{"get namespaces -o name", "namespace/%s\n"},
		{"get deployments -A --no-headers -o custom-columns=:metadata.namespace,:spec.replicas", "%s   1\n"},
	} {
		if _, log, err := split(direct.command(t.Context(), c.args)); err == nil || !strings.Contains(log, "(Forbidden)") {
			t.Errorf("kubectl %s at the server: %v %s", c.args, err, log)
		}
		var want string
		for _, namespace := range hers {
			want += fmt.Sprintf(c.want, namespace)
		}
		out, log, err := split(through.command(t.Context(), c.args))
		if err != nil || out != want || !strings.Contains(log, fmt.Sprintf("personal view: 3 of %d namespaces", d.all)) {
			t.Errorf("kubectl %s: %v\n%s%s", c.args, err, out, log)
		}
	}
	out, log, err := split(through.command(t.Context(), "get deployments -A"))
	t.Logf("$ kubectl get deployments -A\n%s%s", log, out)
	lines := regexp.MustCompile(`(?m)^(team-\d\d) +web-team`).FindAllStringSubmatch(out, -1)
	if err != nil || len(lines) != 3 || !strings.HasPrefix(out, "NAMESPACE ") {
		t.Errorf("kubectl get deployments -A: %v\n%s%s", err, out, log)
	}
	if out, _, _ := split(through.command(t.Context(), "auth can-i list deployments -A")); strings.TrimSpace(out) != "no" {
		t.Errorf("kubectl auth can-i: %s", out)
	}
	d.kubectlWatches(through)
}

// settled waits until a watch can continue a list: some seconds after a grant, and the next write.
func (d *developer) settled() {
	d.Helper()
	d.eventually("a watch continues a list", func() bool {
		d.patch("/api/v1/namespaces/team-01/configmaps", "map-team-01", `{"data":{"x":"`+time.Now().String()+`"}}`)
		var list metav1.PartialObjectMetadataList
		d.must(json.Unmarshal([]byte(d.proxy("/api/v1/configmaps").body), &list))
		got := d.proxy("/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=" + list.ResourceVersion)
		return got.code == http.StatusOK && !strings.Contains(got.body, `"ERROR"`)
	})
}

// kubectlWatches runs kubectl get -w while namespaces are granted and revoked.
func (d *developer) kubectlWatches(k kubectl) {
	d.Helper()
	d.settled()
	command := k.command(d.Context(), "get configmaps -A -w --output-watch-events --no-headers")
	var log bytes.Buffer
	command.Stderr = &log
	out, err := command.StdoutPipe()
	d.must(err)
	d.must(command.Start())
	lines := bufio.NewScanner(out)
	expect := func(want string) {
		d.Helper()
		for lines.Scan() {
			switch fields := strings.Fields(lines.Text()); {
			case len(fields) < 3 || !strings.HasPrefix(fields[2], "map-"):
			case strings.Join(fields[:3], " ") == want:
				return
			default:
				d.Fatalf("kubectl get -w prints %q in place of %q", lines.Text(), want)
			}
		}
		_ = command.Wait()
		d.Fatalf("kubectl get -w ends before %q: %v %s", want, lines.Err(), &log)
	}
	for _, namespace := range hers {
		expect("ADDED " + namespace + " map-" + namespace)
	}
	// until a watch of 6 s has ended: then that of kubectl is older than 5 s, for which another replica may have other
	// namespaces
	d.proxy("/api/v1/configmaps?watch=1&timeoutSeconds=6")
	d.grant("team-00")
	expect("ADDED team-00 map-team-00")
	d.revoke("team-00")
	expect("DELETED team-00 map-team-00")
	_ = command.Process.Kill()
	_ = command.Wait()
}

// Headlamp's requests, as its source sends them: it lists in JSON, and watches from there over a WebSocket with the
// token in a header (its backend's). It asks for no bookmarks. Its list of namespaces has those of the user.
func TestPersonalHeadlamp(t *testing.T) {
	t.Parallel()
	d := newDeveloper(t)
	type event struct {
		Type   string
		Object metav1.PartialObjectMetadata
	}
	var list metav1.PartialObjectMetadataList
	read := func(path string) (names []string) {
		t.Helper()
		if got := d.behind(path); got.code != http.StatusForbidden {
			t.Errorf("the server answers %s: %d", path, got.code)
		}
		got := d.proxy(path)
		if got.code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, got.code, got.body)
		}
		list = metav1.PartialObjectMetadataList{}
		d.must(json.Unmarshal([]byte(got.body), &list))
		for _, o := range list.Items {
			names = append(names, o.Name)
		}
		return names
	}
	if got := read("/api/v1/namespaces"); !slices.Equal(got, hers) {
		t.Errorf("namespaces: %v", got)
	}
	var connection *websocket.Conn
	await.State(t, "a watch continues the list", func() (bool, string) {
		d.patch("/api/v1/namespaces/team-01/configmaps", "map-team-01", `{"data":{"x":"`+fmt.Sprint(len(list.ResourceVersion))+`"}}`)
		if got := read("/apis/apps/v1/deployments?limit=1000"); len(got) != 3 {
			t.Fatalf("deployments: %v", got)
		}
		ws := d.socketConfig(d.front.Config(), "/apis/apps/v1/deployments?watch=1&resourceVersion="+list.ResourceVersion)
		ws.Header.Set("Authorization", "Bearer "+d.token)
		var err error
		connection, err = websocket.DialConfig(ws)
		d.must(err)
		d.admit("web-team-07", fmt.Sprint(list.ResourceVersion))
		var e event
		d.must(json.Unmarshal([]byte(d.receive(connection)), &e))
		return e.Type == "MODIFIED" && e.Object.Name == "web-team-07", fmt.Sprint(e)
	})
	defer connection.Close()
	expect := func(kind, name string) {
		t.Helper()
		var e event
		d.must(json.Unmarshal([]byte(d.receive(connection)), &e))
		if e.Type != kind || e.Object.Name != name {
			t.Errorf("%s %s, want %s %s", e.Type, e.Object.Name, kind, name)
		}
	}
	d.admit("web-team-01", "hidden")
	d.admit("web-team-31", "shown")
	expect("MODIFIED", "web-team-31")
}

// admit annotates a deployment of the namespace in its name.
func (d *developer) admit(name, value string) {
	d.Helper()
	d.patch("/apis/apps/v1/namespaces/"+strings.TrimPrefix(name, "web-")+"/deployments", name,
		fmt.Sprintf(`{"metadata":{"annotations":{"x":%q}}}`, value))
}

// argo follows a resource as Argo CD's cluster cache does: a list in pages of 500 objects, a RetryWatcher from there,
// and all again when that ends.
type argo struct {
	resource dynamic.ResourceInterface
	has      chan map[string]string // revisions by name, after each change
	relists  int
}

func (a *argo) run(ctx context.Context) error {
	for ; ctx.Err() == nil; a.relists++ {
		revision, all := "", map[string]string{}
		pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := a.resource.List(ctx, o)
			if err == nil {
				revision = list.GetResourceVersion()
			}
			return list, err
		})
		pages.PageSize = 500
		err := pages.EachListItem(ctx, metav1.ListOptions{}, func(x runtime.Object) error {
			o := x.(metav1.Object)
			all[o.GetName()] = o.GetResourceVersion()
			return nil
		})
		if err != nil {
			return err
		}
		a.show(ctx, all)
		w, err := watchtools.NewRetryWatcherWithContext(ctx, revision, resumingAll{a.resource})
		if err != nil {
			return err
		}
		for e := range w.ResultChan() {
			o, ok := e.Object.(metav1.Object)
			if !ok {
				continue
			}
			if all[o.GetName()] = o.GetResourceVersion(); e.Type == watch.Deleted {
				delete(all, o.GetName())
			}
			a.show(ctx, all)
		}
	}
	return nil
}

// show makes what it has the newest that can be received.
func (a *argo) show(ctx context.Context, all map[string]string) {
	is := make(map[string]string, len(all))
	for name, revision := range all {
		is[name] = revision
	}
	select {
	case <-a.has:
	default:
	}
	select {
	case a.has <- is:
	case <-ctx.Done():
	}
}

// resumingAll is a resource as client-go's RetryWatcher watches it.
type resumingAll struct{ dynamic.ResourceInterface }

func (r resumingAll) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return r.Watch(ctx, o)
}

// Argo CD's requests, as its source sends them, have in the end what the user may see, while namespaces are granted and
// revoked.
func TestPersonalArgoCD(t *testing.T) {
	t.Parallel()
	d := newDeveloper(t)
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	refused, err := dynamic.NewForConfig(d.direct)
	d.must(err)
	_, err = refused.Resource(deployments).List(t.Context(), metav1.ListOptions{Limit: 500})
	if !apierrors.IsForbidden(err) {
		t.Errorf("at the server: %v", err)
	}
	client, err := dynamic.NewForConfig(d.through)
	d.must(err)
	a := &argo{resource: client.Resource(deployments), has: make(chan map[string]string, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.run(ctx) }()
	wants := func(namespaces ...string) {
		t.Helper()
		last := map[string]string{}
		await.State(t, fmt.Sprint("Argo CD has ", namespaces), func() (bool, string) {
			select {
			case last = <-a.has:
			case err := <-ended:
				t.Fatal(err)
			default:
			}
			if len(last) != len(namespaces) {
				return false, fmt.Sprint(last)
			}
			for _, namespace := range namespaces {
				o, err := d.admin.AppsV1().Deployments(namespace).Get(t.Context(), "web-"+namespace, metav1.GetOptions{})
				if err != nil || last[o.Name] != o.ResourceVersion {
					return false, fmt.Sprint(last)
				}
			}
			return true, ""
		})
	}
	wants(hers...)
	d.grant("team-00")
	d.admit("web-team-00", "1")
	wants(append([]string{"team-00"}, hers...)...)
	d.revoke("team-08")
	wants("team-00", "team-07", "team-31")
	d.admit("web-team-08", "hidden")
	d.admit("web-team-07", "shown")
	wants("team-00", "team-07", "team-31")
	cancel()
	if err := <-ended; err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	t.Logf("%d further lists", a.relists-1)
}
