package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/testserver"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
)

// TestForkHistory begins servers with the state of a moment, and changes them.
func TestForkHistory(t *testing.T) {
	parallel(t)
	s := newTypesServer(t)
	client := kubernetes.NewForConfigOrDie(s.config)
	file := filepath.Join(t.TempDir(), "state.db")
	s.define("widgets", "v1")
	s.create("widgets", "v1", "one")
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "map-reader"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get",
			"list"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first := createMap(t, client, "default", "kept")
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "kept", UID: first.UID},
		{APIVersion: "v1", Kind: "Secret", Name: "unknown", UID: "0"}, // its type is not stored
	}}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, client.CoreV1().Events("default").Create, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "brief"},
		InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Namespace: "default", Name: "kept"},
	})
	p := startProcess(t, "sync", "*", "-A", "--to", "sqlite:"+file)
	p.waitStderr(t, "synced at")
	then := patch(t, client, "kept", "m", "color", "red")
	createMap(t, client, "default", "late")
	s.define("gadgets", "v1")
	s.create("gadgets", "v1", "late")
	last := patch(t, client, "kept", "m", "color", "blue")
	stored(t, "sqlite:"+file, "cm/kept", "default", last)
	p.Process.Kill()
	p.exit(t)
	syncOnce(t, "*", "-A", "--to", "sqlite:"+file) // confirms that the other types have not changed
	at := "revision/" + then

	want, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want.Data["color"], want.ResourceVersion = "red", then
	check := func(config *rest.Config) *kubernetes.Clientset {
		t.Helper()
		forked := kubernetes.NewForConfigOrDie(config)
		got, err := forked.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got.ManagedFields, want.ManagedFields = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the fork has %+v, want %+v", got, want)
		}
		if _, err := forked.CoreV1().ConfigMaps("default").Get(t.Context(), "late",
			metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the fork has what was created later: %v", err)
		}
		return forked
	}

	// The command, with the rights of then.
	kubeconfig := filepath.Join(t.TempDir(), "fork")
	fork := startProcess(t, "serve", "--history", "sqlite:"+file, "--at", at, "--writable", "--authorization-mode", "RBAC",
		"--event-ttl", "1s", "--listen", "127.0.0.1:0", "--kubeconfig-out", kubeconfig)
	fork.waitStderr(t, "ready in")
	if !regexp.MustCompile(`begins with revision ` + then +
		` at \S+: \d+ objects; \d+ apiservices.apiregistration.k8s.io are not served; ` +
		`not followed then: 1 types \(gadgets.example.com, …\); 1 references to owners that are not in the history were removed`).MatchString(fork.stderr.String()) {
		t.Errorf("%s", fork.stderr)
	}
	config := configOf(t, kubeconfig)
	forked := check(config)
	if _, err := forked.RbacV1().ClusterRoles().Get(t.Context(), "map-reader", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	manifest := filepath.Join(t.TempDir(), "kept.yaml")
	const green = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept, namespace: default}\ndata: {color: green}\n"
	if err := os.WriteFile(manifest, []byte(green), 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := kubectlExits(t, 1, "--kubeconfig", kubeconfig, "diff", "-f", manifest); !strings.Contains(diff,
		"-  color: red\n+  color: green\n") {
		t.Errorf("kubectl diff: %s", diff)
	}
	waitFor(t, func() bool { // an Event of then expires
		_, err := forked.CoreV1().Events("default").Get(t.Context(), "brief", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	changed := patch(t, forked, "kept", "m", "color", "green")
	if len(changed) < len(then) || changed <= then && len(changed) == len(then) {
		t.Errorf("the change has revision %s, and began at %s", changed, then)
	}
	o, err := forked.CoreV1().ConfigMaps("default").Get(t.Context(), "owned", metav1.GetOptions{})
	if err != nil || len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != first.UID {
		t.Errorf("%+v, %v", o, err)
	}
	if err := forked.CoreV1().ConfigMaps("default").Delete(t.Context(), "kept", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { // the garbage collector
		_, err := forked.CoreV1().ConfigMaps("default").Get(t.Context(), "owned", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	s.createIn(config, "widgets", "v1", "two")
	if got, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil ||
		got.Data["color"] != "blue" {
		t.Errorf("the cluster has %+v, %v", got, err)
	}

	// Discovery has the types of each moment.
	past := servePast(t, "sqlite:"+file)
	for moment, want := range map[string]string{at: "widgets", "now": "gadgets widgets"} {
		_, text, _ := past.get(t, "/at/"+moment+"/apis/example.com/v1", acceptJSON)
		var list metav1.APIResourceList
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range list.APIResources {
			names = append(names, r.Name)
		}
		if strings.Join(names, " ") != want {
			t.Errorf("at %s there are %q", moment, names)
		}
	}

	// In a Go test, as the same state, also after a restart.
	database, err := sqlite.OpenHistory(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { database.Close() })
	srv := testserver.New(t, testserver.History(database, at))
	check(srv.Config())
	srv.Restart()
	check(srv.Config())
	check(srv.Fork(t).Config())

	if _, err := os.Stat(kubeconfig); err != nil {
		t.Error(err)
	}
}

// TestServeHistoryUsage checks what serve --history, and a fork, refuse.
func TestServeHistoryUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	storeMaps(t, sqlite.New(file, sqlite.Options{}), func() {})
	for args, want := range map[string]string{
		"--history sqlite:nowhere":                                    "no such file",
		"--history nothing":                                           "the database of a history must be",
		"--history sqlite:x --simulate":                               "remove --simulate",
		"--history sqlite:x --data-dir y":                             "remove --data-dir",
		"--history sqlite:x --listen 127.0.0.1:99999":                 "no such file",
		"--writable":                                                  "--writable and --at are for --history",
		"--at now-ish":                                                "--writable and --at are for --history",
		"--audit-log x":                                               "--audit-log is for --history",
		"--authorize x":                                               "--authorize is for --history",
		"--allow-gaps":                                                "--allow-gaps is for --history",
		"--max-replays 3":                                             "--max-replays is for --history",
		"--history sqlite:" + file + " --at now":                      "remove --at",
		"--history sqlite:" + file + " --event-ttl 5m":                "remove --event-ttl",
		"--history sqlite:" + file + " --controllers=false":           "remove --controllers",
		"--history sqlite:" + file + " --watch-history 1h":            "remove --watch-history",
		"--history sqlite:" + file + " --quota-backend-bytes 9":       "remove --quota-backend-bytes",
		"--history sqlite:" + file + " --service-node-port-range 1-2": "remove --service-node-port-range",
		"--history sqlite:" + file + " --writable --authorize x":      "remove --authorize",
		"--history sqlite:" + file + " --writable --audit-log x":      "remove --audit-log",
		"--history sqlite:" + file + " --writable --max-replays 3":    "remove --max-replays",
		"--history sqlite:" + file + " --writable --data-dir x":       "remove --data-dir",
		"--history sqlite:" + file + " --writable --at yesterday":     "--at: moment",
		"--history sqlite:" + file + " --writable --at revision/1":    "the first known moment is revision",
		"--history sqlite:" + file + " --writable --at revision/101":  "the last known moment is revision",
	} {
		if code, _, stderr := execute(t, append([]string{"serve"}, strings.Fields(args)...)...); code == 0 ||
			!strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %s", args, code, stderr)
		}
	}
}

// createIn creates an object of a server.
func (s *typesServer) createIn(config *rest.Config, plural, version, name string) {
	s.Helper()
	client := kubernetes.NewForConfigOrDie(config)
	path := schema.GroupVersion{Group: "example.com", Version: version}
	body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`, path, kindOf(plural), name)
	waitFor(s.T, func() bool { // the definition is served a moment after the start
		err := client.CoreV1().RESTClient().Post().AbsPath("/apis", path.String(), "namespaces/default",
			plural).Body([]byte(body)).Do(s.Context()).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			s.Fatal(err)
		}
		return err == nil
	})
	names := pastNames(s.T, client, "/apis/"+path.String()+"/namespaces/default/"+plural)
	if strings.Join(names, " ") != "one two" {
		s.Errorf("the fork has %q", names)
	}
}

// pastNames lists the names of objects.
func pastNames(t *testing.T, client *kubernetes.Clientset, path string) (names []string) {
	t.Helper()
	list := &metav1.PartialObjectMetadataList{}
	text, err := client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
	if err == nil {
		err = json.Unmarshal(text, list)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		names = append(names, o.Name)
	}
	return names
}
