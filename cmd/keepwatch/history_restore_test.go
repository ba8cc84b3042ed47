package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	lookback "github.com/keepwatch/keepwatch/cmd/keepwatch/internal/history"
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
	client, _ := newCluster(t)
	t.Run("story", func(t *testing.T) { testHistoryRestore(t, client) })
	t.Run("redacted", func(t *testing.T) { testRestoreRedacted(t, client) })
	t.Run("many", func(t *testing.T) { testHistoryRestoreMany(t, client) })
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

// testHistoryRestoreMany deletes objects at random, and restores what was there: everything is as it was, and nothing
// else changes.
func testHistoryRestoreMany(t *testing.T, client kubernetes.Interface) {
	const ns, count = "many", 120
	to := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
	if _, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(7, 7))
	var all []*corev1.ConfigMap
	for i := range count {
		var owners []*corev1.ConfigMap
		if i > 0 && random.IntN(2) == 0 {
			owners = append(owners, all[random.IntN(i)])
		}
		all = append(all, createMap(t, client, ns, fmt.Sprintf("m%d", random.IntN(1e9)), owners...))
	}
	syncOnce(t, "configmaps", "-n", ns, "--to", to)
	for _, o := range all {
		if random.IntN(2) == 0 {
			if err := client.CoreV1().ConfigMaps(ns).Delete(t.Context(), o.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	before, err := client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	code, out, stderr := execute(t, "history", "restore", "cm", "-n", ns, "--from", to, "--at", "now")
	if created := strings.Count(out, " created\n"); code != 0 || created != count-len(before.Items) ||
		strings.Count(out, " unchanged\n") != len(before.Items) {
		t.Fatalf("exit %d, %d created, %s", code, created, stderr)
	}
	after, err := client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(after.Items) != count {
		t.Fatalf("%d objects, %v", len(after.Items), err)
	}
	uids := map[string]types.UID{}
	for _, o := range after.Items {
		uids[o.Name] = o.UID
	}
	for _, was := range all {
		now, err := client.CoreV1().ConfigMaps(ns).Get(t.Context(), was.Name, metav1.GetOptions{})
		if err != nil || fmt.Sprint(now.Data, now.Labels) != fmt.Sprint(was.Data, was.Labels) ||
			len(now.OwnerReferences) != len(was.OwnerReferences) {
			t.Errorf("%s: %+v, %v", was.Name, now, err)
			continue
		}
		for i, owner := range now.OwnerReferences {
			if now.UID != was.UID && owner.UID != uids[was.OwnerReferences[i].Name] {
				t.Errorf("%s: its owner %s has the UID %s, want %s", was.Name, owner.Name, owner.UID, uids[owner.Name])
			}
		}
	}
}
