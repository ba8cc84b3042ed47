package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
)

// typesServer is a server with custom resources of the group example.com.
type typesServer struct {
	*testing.T
	config  *rest.Config
	crds    apiextensions.Interface
	objects dynamic.Interface
}

// newTypesServer is newCluster with such a server.
func newTypesServer(t *testing.T) *typesServer {
	t.Helper()
	_, kubeconfig := newCluster(t)
	config := configOf(t, kubeconfig)
	crds, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &typesServer{t, config, crds, objects}
}

// define creates a type of the group, which serves the versions; the last one is stored.
func (s *typesServer) define(plural string, versions ...string) {
	s.Helper()
	s.defineKind(plural, kindOf(plural), versions...)
}

// kindOf returns the kind of a plural name: Widget of widgets.
func kindOf(plural string) string {
	return strings.ToUpper(plural[:1]) + strings.TrimSuffix(plural[1:], "s")
}

func (s *typesServer) defineKind(plural, kind string, versions ...string) {
	s.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List"},
		},
	}
	keep := true
	for i, v := range versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: v, Served: true, Storage: i == len(versions)-1,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object",
				XPreserveUnknownFields: &keep}},
		})
	}
	if _, err := s.crds.ApiextensionsV1().CustomResourceDefinitions().Create(s.Context(), crd,
		metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// undefine deletes a type, and waits until it is gone.
func (s *typesServer) undefine(plural string) {
	s.Helper()
	crds := s.crds.ApiextensionsV1().CustomResourceDefinitions()
	if err := crds.Delete(s.Context(), plural+".example.com", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	waitFor(s.T, func() bool {
		_, err := crds.Get(s.Context(), plural+".example.com", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// waitUnserved waits until lists of a type are answered 404: a while after its definition is gone.
func (s *typesServer) waitUnserved(plural, version string) {
	s.Helper()
	resource := s.objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: version, Resource: plural})
	waitFor(s.T, func() bool {
		_, err := resource.List(s.Context(), metav1.ListOptions{})
		return apierrors.IsNotFound(err)
	})
}

// create creates an object in the namespace default as soon as the type is served.
func (s *typesServer) create(plural, version, name string) {
	s.Helper()
	s.createInNamespace("default", plural, version, name)
}

func (s *typesServer) createInNamespace(namespace, plural, version, name string) {
	s.Helper()
	resource := s.objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: version,
		Resource: plural}).Namespace(namespace)
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/" + version, "kind": kindOf(plural), "metadata": map[string]any{"name": name},
	}}
	waitFor(s.T, func() bool {
		_, err := resource.Create(s.Context(), o, metav1.CreateOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsServiceUnavailable(err) {
			s.Fatal(err)
		}
		return err == nil
	})
}

// waitCurrent waits until the current objects of a file are the wanted ones, as "resource name" in order.
func (s *typesServer) waitCurrent(p *process, file string, want ...string) {
	s.Helper()
	db := openSQLite(s.T, file)
	slices.Sort(want)
	var got []string
	defer func() {
		if s.Failed() {
			s.Logf("the file has %q, want %q; stderr:\n%s", got, want, p.stderr)
		}
	}()
	waitFor(s.T, func() bool {
		if len(query(s.T, db, `SELECT name FROM sqlite_schema WHERE name = 'resources'`)) == 0 {
			return false // no type has joined yet
		}
		got = query(s.T, db, currentObjects)
		return slices.Equal(got, want)
	})
}

const currentObjects = `SELECT resource || ' ' || name FROM resources WHERE valid_to IS NULL ORDER BY 1`

// TestSyncTypes follows types that appear and disappear.
func TestSyncTypes(t *testing.T) {
	parallel(t)
	s := newTypesServer(t)
	file := filepath.Join(t.TempDir(), "state.db")
	args := []string{"sync", "namespaces,*.example.com", "-A", "--to", "sqlite:" + file}

	// No type at first. Then one with two versions, and one that is never established.
	p := startProcess(t, args...)
	p.waitStderr(t, "synced at")
	s.define("widgets", "v1alpha1", "v1")
	s.create("widgets", "v1", "one")
	s.defineKind("copies", "Widget", "v1") // it is never established: another type has the kind
	namespaces := []string{"namespaces default", "namespaces kube-node-lease", "namespaces kube-public",
		"namespaces kube-system"}
	now := func(more string) []string { return append([]string{more}, namespaces...) }
	s.waitCurrent(p, file, now("widgets.example.com one")...)
	p.waitStderr(t, "widgets.example.com joins")
	waitFor(t, func() bool {
		return regexp.MustCompile(`synced at \d+: namespaces 4, widgets.example.com [01]\n`).MatchString(p.stderr.String())
	})
	if strings.Contains(p.stderr.String(), "copies") {
		t.Errorf("a type that is not established is followed: %s", p.stderr)
	}
	s.undefine("copies") // it would be established without widgets

	// Deleted while it is followed, and made again: another object of the same name.
	s.undefine("widgets")
	s.waitCurrent(p, file, namespaces...)
	p.waitStderr(t, "the server has no widgets.example.com any more")
	s.define("widgets", "v1")
	s.create("widgets", "v1", "one")
	s.waitCurrent(p, file, now("widgets.example.com one")...)
	if got := query(t, openSQLite(t, file),
		`SELECT count(DISTINCT uid) FROM resources WHERE name = 'one'`); got[0] != "2" {
		t.Errorf("%s objects have had the name", got[0])
	}

	// The process is killed. Meanwhile a type appears and another one disappears.
	p.Process.Kill()
	p.exit(t)
	s.undefine("widgets")
	s.define("gadgets", "v1")
	s.create("gadgets", "v1", "two")
	if stderr := syncOnce(t, args[1:]...); !strings.Contains(stderr, "the server has no widgets.example.com any more") ||
		!regexp.MustCompile(`synced at \d+: namespaces 4, gadgets.example.com 1\n$`).MatchString(stderr) {
		t.Errorf("stderr is %q", stderr)
	}
	if got, want := query(t, openSQLite(t, file), currentObjects), append([]string{"gadgets.example.com two"},
		namespaces...); !slices.Equal(got, want) {
		t.Errorf("the file has %q, want %q", got, want)
	}
	if got := query(t, openSQLite(t, file),
		`SELECT resource || ' ' || reason FROM gaps ORDER BY rowid DESC LIMIT 1`); !slices.Equal(got,
		[]string{"widgets.example.com expired"}) {
		t.Errorf("the last gap is %q", got)
	}
	_, stdout, _ := execute(t, "sync", "status", "--to", "sqlite:"+file)
	if !regexp.MustCompile(`widgets.example.com +<all> +\d+ +\d+ +0 +0 +<not followed>`).MatchString(stdout) ||
		!strings.Contains(stdout, "2 of 3: complete at revision") {
		t.Error(stdout)
	}
}

// TestSyncTypesOfNamespaces stores the objects of the namespaces that a file gives with a pattern, and no others.
func TestSyncTypesOfNamespaces(t *testing.T) {
	parallel(t)
	s := newTypesServer(t)
	code, _, stderr := execute(t, "sync", "*.nosuch", "-A", "--until-synced", "--to",
		"sqlite:"+filepath.Join(t.TempDir(), "none.db"))
	if code != exit.CodeError || !strings.HasSuffix(stderr, "keepwatch: the server has no type of *.nosuch\n") {
		t.Errorf("a pattern without types: exit %d, %q", code, stderr)
	}
	s.define("widgets", "v1")
	s.createInNamespace("default", "widgets", "v1", "own")
	s.createInNamespace("kube-system", "widgets", "v1", "second")
	s.createInNamespace("kube-public", "widgets", "v1", "foreign")
	dir := t.TempDir()
	database, settings := filepath.Join(dir, "state.db"), filepath.Join(dir, "sync.yaml")
	text := "to: sqlite:" + database +
		"\nresources:\n- {resource: '*.example.com', namespace: default}\n- {resource: '*.example.com', namespace: kube-system}\n"
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	syncOnce(t, "-f", settings)
	if got := query(t, openSQLite(t, database), currentObjects); !slices.Equal(got, []string{"widgets.example.com own",
		"widgets.example.com second"}) {
		t.Errorf("the file has %q", got)
	}
}

// TestSyncAllTypes follows every type of a server, also one that is defined later, and Secrets only if they are named.
func TestSyncAllTypes(t *testing.T) {
	parallel(t)
	s := newTypesServer(t)
	client := kubernetes.NewForConfigOrDie(s.config)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hidden"},
		Data: map[string][]byte{"password": []byte("xyzzy")}}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	lists, err := client.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, l := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists) {
		group := schema.FromAPIVersionAndKind(l.GroupVersion, "").Group
		for _, r := range l.APIResources {
			if name := (schema.GroupResource{Group: group, Resource: r.Name}).String(); name != "secrets" &&
				name != "events.events.k8s.io" {
				want = append(want, name)
			}
		}
	}
	if len(want) < 30 {
		t.Fatalf("discovery shows %q", want)
	}
	file := filepath.Join(t.TempDir(), "state.db")
	const followed = `SELECT resource FROM cursors WHERE active ORDER BY 1`
	check := func(p *process, want ...string) {
		t.Helper()
		p.waitStderr(t, fmt.Sprintf("objects of %d types\n", len(want)))
		slices.Sort(want)
		waitFor(t, func() bool { return slices.Equal(query(t, openSQLite(t, file), followed), want) })
	}
	p := startProcess(t, "sync", "*", "-A", "--to", "sqlite:"+file)
	check(p, want...)
	s.define("widgets", "v1")
	s.create("widgets", "v1", "one")
	check(p, append(want, "widgets.example.com")...)
	waitFor(t, func() bool {
		return len(query(t, openSQLite(t, file), `SELECT name FROM resources WHERE resource = 'widgets.example.com'`)) == 1
	})
	s.undefine("widgets")
	p.waitStderr(t, "the server has no widgets.example.com any more")
	p.Process.Kill()
	p.exit(t)
	if text, err := os.ReadFile(file); err != nil || bytes.Contains(text, []byte("eHl6enk")) {
		t.Errorf("a Secret was stored, %v", err)
	}
	syncOnce(t, "*,secrets", "-A", "--to", "sqlite:"+file, "--include-secrets", "--redact", "data.*")
	if got := query(t, openSQLite(t, file),
		`SELECT object->>'$.data.password' FROM resources WHERE resource = 'secrets' AND name = 'hidden'`); !slices.Equal(got,
		[]string{"REDACTED"}) {
		t.Errorf("the Secret is %q", got)
	}
}

// TestSyncManyTypes follows many types that are created at once.
func TestSyncManyTypes(t *testing.T) {
	parallel(t)
	n := 100
	if testing.Short() {
		n = 30
	}
	s := newTypesServer(t)
	file := filepath.Join(t.TempDir(), "state.db")
	p := startProcess(t, "sync", "*.example.com", "-A", "--to", "sqlite:"+file)
	p.waitStderr(t, "no type of *.example.com yet")
	var want []string
	for i := range n {
		s.define(fmt.Sprintf("kind%03ds", i), "v1")
		want = append(want, fmt.Sprintf("kind%03ds.example.com one", i))
	}
	for i := range n {
		s.create(fmt.Sprintf("kind%03ds", i), "v1", "one")
	}
	s.waitCurrent(p, file, want...)
	p.waitStderr(t, fmt.Sprintf(" objects of %d types\n", n))
}

// through returns the address of a proxy in front of the server. answer may answer a request, and then returns true.
func (s *typesServer) through(answer func(http.ResponseWriter, *http.Request) bool) string {
	s.Helper()
	address, err := url.Parse(s.config.Host)
	if err != nil {
		s.Fatal(err)
	}
	transport, err := rest.TransportFor(s.config)
	if err != nil {
		s.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(address)
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answer(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	s.Cleanup(server.CloseClientConnections)
	s.Cleanup(server.Close)
	return server.URL
}

func refuse(w http.ResponseWriter, code int, reason string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprint(w, status(code, reason, strings.ToLower(reason)))
	return true
}

// TestSyncTypeDeletedInItsFirstList deletes a type after the first page of its first list was stored.
func TestSyncTypeDeletedInItsFirstList(t *testing.T) {
	parallel(t)
	s := newTypesServer(t)
	var held atomic.Bool
	deleted := make(chan struct{})
	address := s.through(func(w http.ResponseWriter, r *http.Request) bool {
		q := r.URL.Query()
		switch {
		case q.Has("sendInitialEvents"):
			return refuse(w, 400, "BadRequest")
		case strings.HasSuffix(r.URL.Path, "/widgets") && q.Has("continue"):
			held.Store(true)
			select {
			case <-deleted:
			case <-r.Context().Done():
			}
		}
		return false
	})
	s.define("widgets", "v1")
	for _, name := range []string{"one", "two", "three"} {
		s.create("widgets", "v1", name)
	}
	file := filepath.Join(t.TempDir(), "state.db")
	p := startProcess(t, "sync", "*.example.com", "-A", "--to", "sqlite:"+file, "-s", address, "--chunk-size", "1")
	waitFor(t, held.Load)
	s.undefine("widgets")
	s.waitUnserved("widgets", "v1")
	close(deleted)
	p.waitStderr(t, "the server has no widgets.example.com any more")
	s.define("gadgets", "v1")
	s.create("gadgets", "v1", "two")
	s.waitCurrent(p, file, "gadgets.example.com two")
	if got := query(t, openSQLite(t, file),
		`SELECT count(*) FROM resources WHERE resource = 'widgets.example.com' AND deleted`); got[0] != "1" {
		t.Errorf("%s objects of the first page are deleted, want 1", got[0])
	}
}

// TestSyncTypesWithoutPermission may not read CustomResourceDefinitions.
func TestSyncTypesWithoutPermission(t *testing.T) {
	parallel(t)
	s := newTypesServer(t)
	address := s.through(func(w http.ResponseWriter, r *http.Request) bool {
		hidden := strings.HasPrefix(r.URL.Path, "/apis/apiextensions.k8s.io/") || strings.HasSuffix(r.URL.Path, "/secretives")
		return hidden && refuse(w, 403, "Forbidden")
	})
	file := filepath.Join(t.TempDir(), "state.db")
	p := startProcess(t, "sync", "*.example.com", "-A", "--to", "sqlite:"+file, "-s", address)
	p.waitStderr(t, "; the resource types are requested every 30s")
	s.define("secretives", "v1")
	s.define("widgets", "v1")
	s.create("widgets", "v1", "one")
	s.waitCurrent(p, file, "widgets.example.com one")
	p.waitStderr(t, "secretives.example.com: ")
}
