package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	lookback "github.com/keepwatch/keepwatch/cmd/keepwatch/internal/history"
)

// dyingPod creates a Pod of a namespace whose container runs out of memory, and what is reported about it: a start, a
// kill in both APIs of Events, and, twice and later once more, that the container is not started again. At the end the
// Pod is deleted.
func dyingPod(t *testing.T, client kubernetes.Interface, namespace string) *corev1.Pod {
	t.Helper()
	create(t, client.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	pod := create(t, client.CoreV1().Pods(namespace).Create, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	})
	neighbor := create(t, client.CoreV1().Pods(namespace).Create,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "neighbor"}, Spec: pod.Spec})
	involved := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "web", UID: pod.UID}
	clock := time.Now().Truncate(time.Second)
	tick := func() time.Time { // the times of Events have seconds
		clock = clock.Add(time.Second)
		return clock
	}
	report := func(name, kind, reason, message string) {
		t.Helper()
		now := metav1.NewTime(tick())
		create(t, client.CoreV1().Events(namespace).Create, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name}, InvolvedObject: involved, Type: kind, Reason: reason, Message: message,
			Source: corev1.EventSource{Component: "kubelet"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		})
	}
	status := func(s corev1.ContainerStatus) {
		t.Helper()
		s.Name = "c"
		o, err := client.CoreV1().Pods(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		if err == nil {
			o.Status.Phase, o.Status.ContainerStatuses = corev1.PodRunning, []corev1.ContainerStatus{s}
			_, err = client.CoreV1().Pods(namespace).UpdateStatus(t.Context(), o, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	status(corev1.ContainerStatus{Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	report("web.1", "Normal", "Started", "Started container c")
	status(corev1.ContainerStatus{RestartCount: 3,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}})
	create(t, client.EventsV1().Events(namespace).Create, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "web.2"}, Regarding: involved, Type: "Warning", Reason: "Killed",
		Note: "out of\tmemory", Action: "Kill",
		Related: &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "neighbor",
			UID: neighbor.UID},
		ReportingController: "example.com/oom", ReportingInstance: "node-1", EventTime: metav1.NewMicroTime(tick()),
	})
	report("web.3", "Warning", "BackOff", "Back-off restarting container c")
	patch := []byte(`{"count":2,"lastTimestamp":"` + tick().UTC().Format(time.RFC3339) + `"}`)
	if _, err := client.CoreV1().Events(namespace).Patch(t.Context(), "web.3", types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Events(namespace).Delete(t.Context(), "web.3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	report("web.4", "Warning", "BackOff", "Back-off restarting container c")
	grace := int64(0)
	if err := client.CoreV1().Pods(namespace).Delete(t.Context(), "web",
		metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
	report("web.5", "Normal", "Killing", "Stopping container c")
	involved.Kind = "Deployment"
	report("web.6", "Normal", "Another", "about another object")
	return pod
}

// TestHistoryEvents asks why a Pod has died.
func TestHistoryEvents(t *testing.T) {
	parallel(t)
	client, _ := newCluster(t)
	to := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
	sync := startProcess(t, "sync", "pods,events,deployments.apps", "-A", "--to", to)
	sync.waitStderr(t, "synced at")
	const ns = "dying"
	pod := dyingPod(t, client, ns)
	// Until another Pod is stored, the state of this one is not confirmed at the revisions of the last Events.
	create(t, client.CoreV1().Pods(ns).Create, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Spec: pod.Spec})
	var out string
	waitFor(t, func() bool {
		code, stored, _ := execute(t, "history", "events", "pod/web", "-n", ns, "--from", to)
		out = stored
		return code == 0 && strings.Contains(stored, "Killing") && !strings.Contains(stored, "?")
	})
	mustMatch(t, out, `
LAST SEEN +COUNT +FIRST SEEN +TYPE +REASON +EVENT +REVISION +STATE +MESSAGE *
T +1 +T +Normal +Started +current +\d+ +1/1 Running 0 +Started container c *
T +1 +T +Warning +Killed +current +\d+ +0/1 OOMKilled 3 +out of memory \(related: Pod dying/neighbor, \d+\) *
T +3 +T +Warning +BackOff +current +\d+ +0/1 OOMKilled 3 +Back-off restarting container c *
T +1 +T +Normal +Killing +current +\d+ deleted +0/1 Terminating 3 +Stopping container c *
`)
	if out, _ := look(t, "events", "pods", "-n", ns, "--from", to); !strings.Contains(out, "OBJECT") ||
		!strings.Contains(out, ns+"/web ") {
		t.Error(out)
	}
	if err := client.CoreV1().Events(ns).Delete(t.Context(), "web.4", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var found struct{ Events []lookback.ReportedEvents }
	waitFor(t, func() bool {
		out, _ = look(t, "events", "po", "web", "-n", ns, "--from", to, "-o", "json")
		if err := json.Unmarshal([]byte(out), &found); err != nil || len(found.Events) != 4 {
			t.Fatalf("%v: %s", err, out)
		}
		return found.Events[2].End != nil
	})
	back := found.Events[2]
	if back.End.Type != "deleted" || !strings.Contains(back.End.Because, "would have lived for 1h") ||
		back.Object.Revision == 0 || back.Reporter != "kubelet" ||
		back.Event != ns+"/web.4" || string(back.Subject.UID) != string(pod.UID) || back.Last.Before(back.First) {
		t.Errorf("%s", out)
	}
	killed := found.Events[1]
	if killed.Object.Resource != "pods" || killed.Object.At != "revision/"+killed.Object.Revision.String() ||
		killed.Related == nil || killed.Related.Name != "neighbor" || killed.Related.Object.At == "" {
		t.Errorf("%s", out)
	}
	past := servePast(t, to)
	testPageOfEvents(t, past, ns)
	testIncident(t, client, past, to, ns, killed.Object.At)
	if out, _ := look(t, "events", "po", "web", "-n", ns, "--from", to, "-o", "yaml"); !strings.Contains(out,
		"because: it ended") {
		t.Error(out)
	}
	sync.end()
	// A history of Events alone.
	alone := "sqlite:" + filepath.Join(t.TempDir(), "events.db")
	syncOnce(t, "events.v1.events.k8s.io", "-A", "--to", alone)
	out, _ = look(t, "events", "pod/web", "-n", ns, "--from", alone)
	mustMatch(t, out, `(.*\n)*T +1 +T +Warning +Killed +current +<not stored> +out of memory \(related: Pod dying/neighbor\) *\n(.*\n)*`)
	none := "sqlite:" + filepath.Join(t.TempDir(), "none.db")
	syncOnce(t, "configmaps", "-A", "--to", none)
	for name, row := range map[string]struct {
		code int
		args string
		want string
	}{
		"no Events": {1, "pod/web --from " + none, "the history has no events: keepwatch sync events stores them"},
		"none about it": {1, "pod/nothing -n dying --from " + to,
			"the history has no Events about pod/nothing in namespace dying"},
		"an unknown type": {1, "widget/x --from " + alone, `the history has no resource type "widget"`},
		"no type":         {2, "--from " + to, "give the type"},
		"a lifetime":      {2, "pod/web --event-ttl 0s --from " + to, "--event-ttl must be positive"},
		"an output":       {2, "pod/web -o wide --from " + to, "--output must be text, json, yaml"},
	} {
		code, stdout, stderr := execute(t, append([]string{"history", "events"}, strings.Fields(row.args)...)...)
		if code != row.code || stdout != "" || !strings.Contains(stderr, row.want) {
			t.Errorf("%s: exit %d, %q%q, want %q", name, code, stdout, stderr, row.want)
		}
	}
}

// testPageOfEvents follows the links of the page from Events to the states of then.
func testPageOfEvents(t *testing.T, past *pastServer, namespace string) {
	t.Helper()
	list := readPage(t, past, "/keepwatch/?type=events&at=now&namespace="+namespace)
	started := readPage(t, past, "/keepwatch/"+list.link("", "pod/web")) // the Object of the first one
	started.must(http.StatusOK, "1 pods at revision", "1/1", "keepwatch history restore pods/web")
	if state := strings.Join(started.lines, "\n"); !strings.Contains(state, "ready: true") {
		t.Errorf("the state is %s", state)
	}
	one := readPage(t, past, "/keepwatch/?type=events&name=web.2&namespace="+namespace)
	event := readPage(t, past, "/keepwatch/"+one.link("added", "ADDED"))
	event.must(http.StatusOK, "About Pod dying/web, as it was when the Event was written.", "Related Pod dying/neighbor")
	killed := readPage(t, past, "/keepwatch/"+event.link("", "Pod dying/web"))
	killed.must(http.StatusOK, "1 pods at revision", "OOMKilled")
	readPage(t, past, "/keepwatch/"+event.link("", "Pod dying/neighbor")).must(http.StatusOK, "1 pods at revision")
	last := readPage(t, past, "/keepwatch/?type=events&at=now&name=web.5&namespace="+namespace)
	readPage(t, past, "/keepwatch/"+last.link("", "pod/web")).must(http.StatusOK, "No object existed then.")
	other := readPage(t, past, "/keepwatch/?type=events&name=web.6&namespace="+namespace) // of a type that is not stored
	other = readPage(t, past, "/keepwatch/"+other.link("added", "ADDED"))
	other.must(http.StatusOK, "About Deployment dying/web.")
}

// testIncident runs the first example of docs/history.md: describe shows the Pod at an Event, blame names the manager
// and the revision that changed the memory limit, and restore writes the value before.
func testIncident(t *testing.T, client kubernetes.Interface, past *pastServer, to, namespace, moment string) {
	t.Helper()
	limit := func(memory string) string {
		t.Helper()
		pastKubectl(t, "set", "resources", "deployment/web", "-n", namespace, "--limits", "memory="+memory)
		return memoryOf(t, client, namespace)
	}
	pastKubectl(t, "create", "deployment", "web", "--image", "i", "-n", namespace)
	limit("256Mi")
	if got := limit("16Mi"); got != "16Mi" {
		t.Fatalf("the Deployment has %s", got)
	}
	code, _, stderr := execute(t, "history", "context", moment, "--kubeconfig", past.kubeconfig)
	if code != 0 {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	described := pastKubectl(t, "--kubeconfig", past.kubeconfig, "--context", moment, "describe", "pod", "web", "-n",
		namespace)
	mustMatch(t, described, `(.*\n)* +Reason: +OOMKilled\n +Exit Code: +137\n(.*\n)*Events:\n(.*\n)* +Normal +Started .*\n(.*\n)*`)
	if strings.Contains(described, "BackOff") {
		t.Errorf("an Event of later: %s", described)
	}
	var memory []string
	waitFor(t, func() bool {
		_, blame, _ := execute(t, "history", "blame", "deployment/web", "-n", namespace, "--from", to)
		memory = regexp.MustCompile(`(?m)^(\d+) .*kubectl-set +\S+limits.memory +"16Mi" +"256Mi"`).FindStringSubmatch(blame)
		return memory != nil
	})
	revision, err := strconv.Atoi(memory[1])
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := execute(t, "history", "restore", "deployment/web", "-n", namespace, "--at",
		fmt.Sprintf("revision/%d", revision-1), "--from", to, "--dry-run=false", "--force-conflicts")
	if code != 0 || memoryOf(t, client, namespace) != "256Mi" {
		t.Errorf("exit %d, %s%s: the Deployment has %s", code, stdout, stderr, memoryOf(t, client, namespace))
	}
}

// memoryOf returns the limit of the Deployment web.
func memoryOf(t *testing.T, client kubernetes.Interface, namespace string) string {
	t.Helper()
	web, err := client.AppsV1().Deployments(namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return web.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String()
}
