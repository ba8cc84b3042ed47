package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	lookback "github.com/keepwatch/keepwatch/cmd/keepwatch/internal/history"
)

var (
	restoreObjects = flag.Int("restore.objects", 0, "objects of TestHistoryRestore, of which it deletes half; 0 is 120 with -short, and 600 without")
	restoreSeed    = flag.Uint64("restore.seed", 0, "the seed of a run that printed it; 0 draws one")
)

// stored waits until the newest state of an object in a database is a revision, or its deletion if that is "".
func stored(t *testing.T, to, object, namespace, revision string) {
	t.Helper()
	waitFor(t, func() bool {
		code, out, _ := execute(t, "history", "log", object, "-n", namespace, "--from", to, "-o", "json")
		var log struct{ Events []lookback.LoggedEvent }
		if code != 0 || json.Unmarshal([]byte(out), &log) != nil {
			return false
		}
		last := log.Events[len(log.Events)-1]
		return revision == "" && last.Type == "DELETED" || last.Revision.String() == revision
	})
}

// createMap creates a ConfigMap, which others may own, and returns it.
func createMap(t *testing.T, client kubernetes.Interface, namespace, name string,
	owners ...*corev1.ConfigMap) *corev1.ConfigMap {
	t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "x"}},
		Data: map[string]string{"name": name}}
	for _, owner := range owners {
		o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap",
			Name: owner.Name, UID: owner.UID})
	}
	created, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), o,
		metav1.CreateOptions{FieldManager: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// TestHistoryRestore runs the tests that share one server.
func TestHistoryRestore(t *testing.T) {
	parallel(t)
	client, kubeconfig := newCluster(t)
	t.Run("story", func(t *testing.T) { testHistoryRestore(t, client) })
	t.Run("redacted", func(t *testing.T) { testRestoreRedacted(t, client) })
	t.Run("many", func(t *testing.T) { testHistoryRestoreMany(t, client, kubeconfig) })
	t.Run("a namespace", testRestoreNamespace)
}

// testHistoryRestore restores objects that were changed, deleted, and deleted with their owners; and names what cannot
// be restored.
func testHistoryRestore(t *testing.T, client kubernetes.Interface) {
	to := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
	const ns = "restore"
	if _, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	maps := client.CoreV1().ConfigMaps(ns)
	startProcess(t, "sync", "configmaps,services", "-n", ns, "--to", to).waitStderr(t, "synced at")
	grandchildren := []*corev1.ConfigMap{createMap(t, client, ns, "c")}
	parent := createMap(t, client, ns, "z-parent")
	child := createMap(t, client, ns, "b-child", parent)
	last := createMap(t, client, ns, "a-grandchild", child, grandchildren[0])
	stored(t, to, "cm/a-grandchild", ns, last.ResourceVersion)
	at := "revision/" + last.ResourceVersion
	run := func(code int, args ...string) (out, stderr string) {
		t.Helper()
		got, out, stderr := execute(t, append([]string{"history", "restore", "-n", ns, "--from", to}, args...)...)
		if got != code {
			t.Fatalf("%v: exit %d, %s%s", args, got, out, stderr)
		}
		return out, stderr
	}
	for _, name := range []string{"z-parent", "b-child", "a-grandchild"} {
		if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// A dry run writes nothing.
	out, stderr := run(0, "configmaps", "-l", "app=x", "--at", at, "--dry-run")
	if want := "configmaps/z-parent -n restore created (dry run)\nconfigmaps/b-child -n restore created (dry run)\n" +
		"configmaps/c -n restore unchanged (dry run)\nconfigmaps/a-grandchild -n restore created (dry run)\n"; out != want ||
		stderr != "keepwatch: nothing was written: --dry-run=false writes it\n" {
		t.Errorf("%s%s, want\n%s", out, stderr, want)
	}
	if _, err := maps.Get(t.Context(), "z-parent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run: %v", err)
	}
	// One alone loses the owner that is gone; all together are restored in the order of owners.
	_, stderr = run(0, "cm/b-child", "--at", at, "--dry-run=true")
	if !strings.Contains(stderr,
		"configmaps/b-child -n restore: its owner ConfigMap z-parent does not exist, or is being deleted: it is restored without") {
		t.Error(stderr)
	}
	run(0, "configmaps", "-l", "app=x", "--at", at)
	now := map[string]*corev1.ConfigMap{}
	for _, was := range []*corev1.ConfigMap{grandchildren[0], parent, child, last} {
		o, err := maps.Get(t.Context(), was.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		now[o.Name] = o
		if fmt.Sprint(o.Data, o.Labels) != fmt.Sprint(was.Data, was.Labels) {
			t.Errorf("%s: %v %v", o.Name, o.Data, o.Labels)
		}
	}
	if o := now["a-grandchild"]; len(o.OwnerReferences) != 2 || o.OwnerReferences[0].UID != now["b-child"].UID ||
		o.OwnerReferences[1].UID != now["c"].UID ||
		now["b-child"].OwnerReferences[0].UID != now["z-parent"].UID {
		t.Errorf("owners: %+v", o.OwnerReferences)
	}
	// A conflict is named, and nothing is written, not even what has none.
	body := []byte(`{"data":{"name":"changed"}}`)
	if _, err := maps.Patch(t.Context(), "c", types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: "bob"}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "a-grandchild", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, stderr = run(1, "cm", "--at", at)
	if !strings.Contains(stderr,
		`configmaps/c -n restore: conflict with "bob" using v1 at .data.name: see --force-conflicts`) ||
		!strings.HasSuffix(stderr, "keepwatch: nothing was written: 1 of 4 objects cannot be restored\n") {
		t.Error(stderr)
	}
	if _, err := maps.Get(t.Context(), "a-grandchild", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("something was written: %v", err)
	}
	out, _ = run(0, "cm/c", "--at", at, "--force-conflicts", "--dry-run")
	if out != "configmaps/c -n restore configured (dry run)\n" {
		t.Error(out)
	}
	out, _ = run(0, "cm", "--at", at, "--force-conflicts", "-o", "json")
	var report struct{ Objects []lookback.RestoredObject }
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Objects) != 4 ||
		report.Objects[1].Result != "unchanged" ||
		report.Objects[2].Result != "configured" {
		t.Errorf("%s, %v", out, err)
	}
	if o, err := maps.Get(t.Context(), "c", metav1.GetOptions{}); err != nil || o.Data["name"] != "c" {
		t.Errorf("%v, %v", o, err)
	}
	if o, err := maps.Get(t.Context(), "b-child", metav1.GetOptions{}); err != nil || len(o.OwnerReferences) != 1 {
		t.Errorf("the owners after another restoration: %v, %v", o, err)
	}
	testRestoreObstacles(t, client, to, run)
}

// testRestoreRedacted does not write the word for a value that was not stored in place of the value, and nothing of an
// object whose fields were not stored.
func testRestoreRedacted(t *testing.T, client kubernetes.Interface) {
	createMap(t, client, "default", "redacted")
	for _, path := range []string{"data.name", "data"} {
		to := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
		syncOnce(t, "configmaps", "-A", "--redact", path, "--to", to)
		code, out, stderr := execute(t, "history", "restore", "cm/redacted", "-n", "default", "--at", "now",
			"--force-conflicts", "--from", to)
		want := "configmaps/redacted -n default: the history has REDACTED in place of the value of " + path
		if code != 1 || out != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "nothing was written") {
			t.Errorf("exit %d, %s%s, want %s", code, out, stderr, want)
		}
	}
	for _, fields := range []string{"metadata.labels", "metadata"} {
		to := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
		syncOnce(t, "configmaps", "-A", "--fields", fields, "--to", to)
		code, out, stderr := execute(t, "history", "restore", "cm/redacted", "-n", "default", "--at", "now",
			"--force-conflicts", "--from", to)
		want := "configmaps/redacted -n default: the history has some of its fields only: sync --fields"
		if code != 1 || out != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "nothing was written") {
			t.Errorf("exit %d, %s%s, want %s", code, out, stderr, want)
		}
	}
	o, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "redacted", metav1.GetOptions{})
	if err != nil || o.Data["name"] != "redacted" {
		t.Errorf("%v, %v", o, err)
	}
}

// testRestoreObstacles names what hinders: an object that is being deleted, a namespace that is gone. A service gets
// another cluster IP.
func testRestoreObstacles(t *testing.T, client kubernetes.Interface, to string,
	run func(int, ...string) (string, string)) {
	const ns = "restore"
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}
	held, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), held, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	service, err := client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}},
			Selector: map[string]string{"a": "b"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored(t, to, "svc/web", ns, service.ResourceVersion)
	stored(t, to, "cm/held", ns, held.ResourceVersion)
	leaf := createMap(t, client, ns, "leaf", held)
	stored(t, to, "cm/leaf", ns, leaf.ResourceVersion)
	if err := client.CoreV1().ConfigMaps(ns).Delete(t.Context(), "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	at := "revision/" + held.ResourceVersion
	if _, stderr := run(1, "cm/held", "--at", at); !strings.Contains(stderr,
		"it is being deleted, which waits for its finalizers: example.com/hold") {
		t.Error(stderr)
	}
	// The garbage collector would delete it with such an owner.
	if err := client.CoreV1().ConfigMaps(ns).Delete(t.Context(), "leaf", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, stderr := run(0, "cm/leaf", "--at", "revision/"+leaf.ResourceVersion); !strings.Contains(stderr,
		"its owner ConfigMap held does not exist, or is being deleted: it is restored without") {
		t.Error(stderr)
	}
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := client.CoreV1().ConfigMaps(ns).Patch(t.Context(), "held", types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	_, stderr := run(0, "cm/held", "--at", at)
	if !strings.Contains(stderr, "it gets its finalizers back, which only their controllers remove: example.com/hold") {
		t.Error(stderr)
	}
	if err := client.CoreV1().Services(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	other, err := client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{ // takes the address
		ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.ServiceSpec{ClusterIP: service.Spec.ClusterIP,
			Ports: service.Spec.Ports},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	run(0, "svc/web", "--at", "revision/"+service.ResourceVersion)
	if now, err := client.CoreV1().Services(ns).Get(t.Context(), "web", metav1.GetOptions{}); err != nil ||
		now.Spec.ClusterIP == other.Spec.ClusterIP || now.Spec.Ports[0].Port != 80 || now.Spec.Selector["a"] != "b" {
		t.Errorf("%+v, %v", now, err)
	}
	for name, row := range map[string]struct {
		code int
		args string
		want string
	}{
		"no moment":           {2, "cm/held", "give the moment whose state is restored: --at 10:40"},
		"a bad selector":      {2, "cm -l a=b=c --at now", `--selector "a=b=c"`},
		"a name and labels":   {2, "cm/held -l a=b --at now", "a name and --selector can't be combined"},
		"names and types":     {2, "cm/held,svc --at now", "give several types, or one object"},
		"nothing is selected": {1, "cm -l a=b --at " + at, "the history has no such object at revision/"},
		"before":              {1, "cm/held --at revision/2", "the first known moment is revision"},
		"no server":           {1, "cm/held --at " + at + " --server https://127.0.0.1:1", "refused"},
	} {
		if out, stderr := run(row.code, strings.Fields(row.args)...); out != "" || !strings.Contains(stderr, row.want) {
			t.Errorf("%s: %s%s", name, out, stderr)
		}
	}
}

// manyTypes are the types of testHistoryRestoreMany, with what a person may write of their objects. Each claim has a
// volume.
var manyTypes = map[string]struct{ kind, content string }{
	"configmaps": {"v1 ConfigMap", `"data":{"n":"NUMBER"}`},
	"services":   {"v1 Service", `"spec":{"selector":{"n":"NUMBER"},"ports":[{"port":80}]}`},
	"deployments.apps": {"apps/v1 Deployment", `"spec":{"replicas":NUMBER,"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i:NUMBER"}]}}}`},
	claims: {"v1 PersistentVolumeClaim", `"spec":{"volumeName":"NAME","accessModes":["ReadWriteOnce"],
		"resources":{"requests":{"storage":"NUMBERGi"}}}`},
}

const claims = "persistentvolumeclaims"

// many are the objects of a namespace, and volumes.
type many struct {
	*testing.T
	client    dynamic.Interface
	namespace string
}

func (m *many) of(resource string) dynamic.ResourceInterface {
	parsed := schema.ParseGroupResource(resource).WithVersion("v1")
	if resource == "persistentvolumes" {
		return m.client.Resource(parsed)
	}
	return m.client.Resource(parsed).Namespace(m.namespace)
}

// create creates an object, which another one may own.
func (m *many) create(resource, name string, number int, owner *unstructured.Unstructured) *unstructured.Unstructured {
	m.Helper()
	of := manyTypes[resource]
	version, kind, _ := strings.Cut(of.kind, " ")
	text := strings.NewReplacer("NAME", name, "NUMBER", fmt.Sprint(number)).Replace(fmt.Sprintf(
		`{"apiVersion":%q,"kind":%q,"metadata":{"name":"NAME","labels":{"n":"NUMBER"}},%s}`, version, kind, of.content))
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		m.Fatal(err)
	}
	if owner != nil {
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(),
			Name: owner.GetName(), UID: owner.GetUID()}})
	}
	created, err := m.of(resource).Create(m.Context(), o, metav1.CreateOptions{FieldManager: "alice"})
	if err != nil {
		m.Fatal(err)
	}
	if resource == claims { // bound
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":%[1]q},"spec":{
			"capacity":{"storage":"9Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/x"},
			"claimRef":{"namespace":%[2]q,"name":%[1]q,"uid":%[3]q}}}`, name, m.namespace, created.GetUID())
		volume := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &volume.Object); err != nil {
			m.Fatal(err)
		}
		if _, err := m.of("persistentvolumes").Create(m.Context(), volume, metav1.CreateOptions{}); err != nil {
			m.Fatal(err)
		}
	}
	return created
}

// list returns all objects, by type and name.
func (m *many) list() map[string]*unstructured.Unstructured {
	m.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, resource := range append(slices.Collect(maps.Keys(manyTypes)), "persistentvolumes") {
		list, err := m.of(resource).List(m.Context(), metav1.ListOptions{})
		if err != nil {
			m.Fatal(err)
		}
		for i := range list.Items {
			all[resource+"/"+list.Items[i].GetName()] = &list.Items[i]
		}
	}
	return all
}

func (m *many) delete(resource, name string) {
	m.Helper()
	if err := m.of(resource).Delete(m.Context(), name, metav1.DeleteOptions{}); err != nil {
		m.Fatal(err)
	}
}

// testHistoryRestoreMany deletes objects at random, and volumes of claims, and restores what was there. The objects are
// as they were, and in the order of owners. What is lost of claims is said before. Nothing else changes.
func testHistoryRestoreMany(t *testing.T, client kubernetes.Interface, kubeconfig string) {
	count, seed := cmp.Or(*restoreObjects, inShort(120, 600)), cmp.Or(*restoreSeed, rand.Uint64())
	t.Logf("-restore.objects %d -restore.seed %d", count, seed)
	random := rand.New(rand.NewPCG(seed, 7))
	to := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
	m := &many{t, dynamic.NewForConfigOrDie(configOf(t, kubeconfig)), "many"}
	create(t, client.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: m.namespace}})
	resources := slices.Sorted(maps.Keys(manyTypes))
	var all []*unstructured.Unstructured
	ids := map[types.UID]string{} // as list has them
	for i := range count {
		var owner *unstructured.Unstructured
		if i > 0 && random.IntN(2) == 0 {
			owner = all[random.IntN(i)]
		}
		resource, name := resources[random.IntN(len(resources))], fmt.Sprintf("m%d-%d", random.IntN(1000), i)
		o := m.create(resource, name, 1+random.IntN(9), owner)
		all, ids[o.GetUID()] = append(all, o), resource+"/"+name
	}
	types := strings.Join(resources, ",")
	syncOnce(t, types, "-n", m.namespace, "--to", to)
	was := m.list()
	deleted := 0
	for _, o := range all {
		if random.IntN(2) == 0 {
			resource, name, _ := strings.Cut(ids[o.GetUID()], "/")
			if m.delete(resource, name); resource == claims && random.IntN(2) == 0 {
				m.delete("persistentvolumes", name)
			}
			deleted++
		}
	}
	before := m.list()
	restore := []string{"history", "restore", types, "-n", m.namespace, "--from", to, "--at", "now"}
	code, out, notes := execute(t, append(restore, "--dry-run")...)
	if code != 0 || strings.Count(out, " created (dry run)\n") != deleted {
		t.Fatalf("exit %d, of %d deleted, %s%.3000s", code, deleted, out, notes)
	}
	if now := m.list(); !maps.EqualFunc(now, before, sameRevision) {
		t.Error("the dry run has changed something")
	}
	code, out, stderr := execute(t, restore...)
	if code != 0 || strings.Count(out, " created\n") != deleted || strings.Count(out, " unchanged\n") != count-deleted {
		t.Fatalf("exit %d, of %d deleted, %s%.3000s", code, deleted, out, stderr)
	}
	now := m.list()
	order := map[string]int{} // of the report
	for i, line := range strings.Split(out, "\n") {
		id, _, _ := strings.Cut(line, " ")
		order[id] = i
	}
	for id, o := range was {
		switch live := now[id]; {
		case before[id] != nil:
			if live == nil || !sameRevision(live, before[id]) {
				t.Errorf("%s was not deleted, and has changed: %v", id, live)
			}
		case strings.HasPrefix(id, "persistentvolumes/"): // gone
			if live != nil {
				t.Errorf("%s was not to be restored", id)
			}
		case live == nil:
			t.Errorf("%s is missing", id)
		default:
			m.judge(id, o, now, before, notes)
			for _, owner := range o.GetOwnerReferences() {
				if was := ids[owner.UID]; order[was] > order[id] {
					t.Errorf("%s was restored before its owner %s", id, was)
				}
			}
		}
	}
	if len(now) != count+len(before)-(count-deleted) {
		t.Errorf("%d objects, of %d", len(now), count)
	}
}

func sameRevision(a, b *unstructured.Unstructured) bool {
	return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

// judge compares an object that was restored with what it was, apart from what is new: its addresses, owners that were
// restored, and volumes that are gone.
func (m *many) judge(id string, was *unstructured.Unstructured, now, before map[string]*unstructured.Unstructured,
	notes string) {
	m.Helper()
	live := now[id]
	spec := func(o *unstructured.Unstructured) any {
		o = o.DeepCopy()
		for _, address := range []string{"clusterIP", "clusterIPs"} {
			unstructured.RemoveNestedField(o.Object, "spec", address)
		}
		return []any{o.Object["spec"], o.Object["data"], o.GetLabels()}
	}
	if name, isClaim := strings.CutPrefix(id, claims+"/"); isClaim {
		note := fmt.Sprintf("its volume %s belongs to the claim with the UID %s", name, was.GetUID())
		if before["persistentvolumes/"+name] == nil {
			note = fmt.Sprintf("its volume %s is gone, and its data: the claim gets a new one", name)
			was = was.DeepCopy()
			unstructured.RemoveNestedField(was.Object, "spec", "volumeName")
		}
		if want := fmt.Sprintf("%s -n %s: %s", id, m.namespace, note); !strings.Contains(notes, want) {
			m.Errorf("the dry run does not say %q", want)
		}
	}
	if !reflect.DeepEqual(spec(live), spec(was)) {
		m.Errorf("%s is %v, and was %v", id, spec(live), spec(was))
	}
	owners, were := live.GetOwnerReferences(), was.GetOwnerReferences()
	if len(owners) != len(were) {
		m.Errorf("%s has the owners %v, and had %v", id, owners, were)
		return
	}
	for i, owner := range owners {
		for resource, of := range manyTypes {
			if strings.HasSuffix(of.kind, " "+owner.Kind) && owner.UID != now[resource+"/"+owner.Name].GetUID() {
				m.Errorf("%s: its owner %s has the UID %s, and was %v", id, owner.Name, owner.UID, were[i])
			}
		}
	}
}

// testRestoreNamespace restores a namespace, a definition, and what was in them: the definition is written before its
// objects, the namespace before what was in it.
func testRestoreNamespace(t *testing.T) {
	s := newTypesServer(t)
	client := kubernetes.NewForConfigOrDie(s.config)
	to := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
	const ns = "a-shop"
	create(t, client.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns,
		Labels: map[string]string{"team": "blue"}}})
	s.define("widgets", "v1")
	s.createInNamespace(ns, "widgets", "v1", "one")
	createMap(t, client, ns, "a-map")
	const all = "configmaps,customresourcedefinitions.apiextensions.k8s.io,namespaces,widgets.example.com"
	syncOnce(t, all, "-A", "--to", to)
	s.undefine("widgets")
	s.waitUnserved("widgets", "v1")
	if err := client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	others := func() (all []string) {
		list, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			if o.Name != ns {
				all = append(all, o.Name+"@"+o.ResourceVersion)
			}
		}
		return all
	}
	before := others()
	restore := func(suffix string, flags ...string) {
		t.Helper()
		code, out, stderr := execute(t, append([]string{"history", "restore", all + ",cm", "-A", "--from", to, "--at", "now"},
			flags...)...)
		var created []string
		for line := range strings.Lines(out) {
			if what, isNew := strings.CutSuffix(line, " created"+suffix+"\n"); isNew {
				created = append(created, what)
			}
		}
		want := []string{"customresourcedefinitions.apiextensions.k8s.io/widgets.example.com", "namespaces/" + ns,
			"configmaps/a-map -n " + ns, "widgets.example.com/one -n " + ns}
		if code != 0 || !slices.Equal(created, want) {
			t.Fatalf("exit %d, created %q, want %q: %s%s", code, created, want, out, stderr)
		}
	}
	restore(" (dry run)", "--dry-run")
	restore("")
	namespace, err := client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
	if err != nil || namespace.Labels["team"] != "blue" {
		t.Errorf("%v, %v", namespace, err)
	}
	widget := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	if _, err := s.objects.Resource(widget).Namespace(ns).Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if now := others(); !slices.Equal(now, before) {
		t.Errorf("other namespaces were %v, and are %v", before, now)
	}
}
