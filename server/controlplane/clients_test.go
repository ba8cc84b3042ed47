package controlplane_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

func testPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main:1"}}},
	}
}

func testDeployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: testPod(name).Spec},
		},
	}
}

// Typed clients use protobuf for built-in kinds; it must have the same content as JSON.
func TestProtobufAndJSONAgree(t *testing.T) {
	jsonClients := connect(t, shared.RESTConfig())
	config := shared.RESTConfig()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf // no other answer will do
	protobuf := must(kubernetes.NewForConfig(config))(t)
	ns := newNamespace(t, jsonClients)
	ctx := t.Context()

	created := must(protobuf.CoreV1().Pods(ns).Create(ctx, testPod("p"), metav1.CreateOptions{}))(t)
	got := must(jsonClients.typed.CoreV1().Pods(ns).Get(ctx, "p", metav1.GetOptions{}))(t)
	if created.UID != got.UID || created.Spec.Containers[0].Image != got.Spec.Containers[0].Image {
		t.Errorf("created %v, got %v", created, got)
	}
	events := must(protobuf.CoreV1().Pods(ns).Watch(ctx, metav1.ListOptions{}))(t)
	defer events.Stop()
	if pod := expectEvent(t, events, watch.Added); pod.GetUID() != created.UID {
		t.Errorf("watched %v", pod)
	}
	list := must(protobuf.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{}))(t)
	if len(list.Items) != 1 || list.Items[0].UID != created.UID {
		t.Errorf("listed %v", list.Items)
	}
}

// Items of a built-in list have no type, those of a custom resource's list do, as in kube-apiserver.
func TestTypesOfListItems(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	raw := must(c.typed.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces").DoRaw(t.Context()))(t)
	var list struct {
		Kind  string
		Items []map[string]any
	}
	decodeJSON(t, raw, &list)
	if list.Kind != "NamespaceList" || len(list.Items) == 0 {
		t.Fatalf("no list: %s", raw)
	}
	for _, item := range list.Items {
		if item["kind"] != nil || item["apiVersion"] != nil {
			t.Errorf("an item has a type: %v", item)
		}
	}
}

func TestMetadataClient(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	must(c.typed.CoreV1().Pods(ns).Create(t.Context(), testPod("p"), metav1.CreateOptions{}))(t)
	pods := c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(ns)
	list := must(pods.List(t.Context(), metav1.ListOptions{}))(t)
	if len(list.Items) != 1 || list.Items[0].Labels["app"] != "p" {
		t.Errorf("listed %v", list.Items)
	}
	if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := pods.Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the delete: %v", err)
	}
}

func TestStreamingList(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	names := map[string]bool{"a": true, "b": true, "c": true}
	for name := range names {
		must(c.typed.CoreV1().Pods(ns).Create(t.Context(), testPod(name), metav1.CreateOptions{}))(t)
	}
	initial := true
	events := must(c.typed.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: &initial, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}))(t)
	defer events.Stop()
	for event := range events.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		switch {
		case !ok:
			t.Fatalf("%s %v", event.Type, event.Object)
		case event.Type == watch.Added:
			delete(names, pod.Name)
			continue
		case event.Type != watch.Bookmark || pod.Annotations[metav1.InitialEventsAnnotationKey] != "true":
			t.Fatalf("%s %v before the end of the initial events", event.Type, pod)
		case len(names) > 0:
			t.Fatalf("the initial events ended without %v", names)
		}
		return
	}
	t.Fatal("the watch ended")
}

func TestFieldSelectors(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	for i, node := range []string{"n1", "n1", "n2"} {
		pod := testPod(string(rune('a' + i)))
		pod.Spec.NodeName = node
		must(c.typed.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{}))(t)
	}
	running := must(c.typed.CoreV1().Pods(ns).Get(ctx, "a", metav1.GetOptions{}))(t)
	running.Status.Phase = corev1.PodRunning
	must(c.typed.CoreV1().Pods(ns).UpdateStatus(ctx, running, metav1.UpdateOptions{}))(t)
	must(c.typed.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}},
		metav1.CreateOptions{}))(t)
	must(c.typed.CoreV1().Events(ns).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: ns,
			Name: "a"}, Reason: "Test",
	}, metav1.CreateOptions{}))(t)

	pods := func(selector string) int {
		return len(must(c.typed.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{FieldSelector: selector}))(t).Items)
	}
	for selector, want := range map[string]int{
		"metadata.name=a": 1, "metadata.namespace=" + ns: 3, "spec.nodeName=n1": 2, "spec.nodeName!=n1": 1,
		"status.phase=Pending": 2, "status.phase=Running": 1, "spec.restartPolicy=Always": 3, "metadata.namespace=other": 0,
	} {
		if got := pods(selector); got != want {
			t.Errorf("%d pods match %s, want %d", got, selector, want)
		}
	}
	if n := len(must(c.typed.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{FieldSelector: "type=Opaque"}))(
		t).Items); n != 1 {
		t.Errorf("%d secrets match type=Opaque", n)
	}
	if n := len(must(c.typed.CoreV1().Events(ns).List(ctx,
		metav1.ListOptions{FieldSelector: "involvedObject.name=a,reason=Test"}))(t).Items); n != 1 {
		t.Errorf("%d core events match", n)
	}
	if n := len(must(c.typed.EventsV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=a"}))(
		t).Items); n != 1 {
		t.Errorf("%d events.k8s.io events match", n)
	}
	_, err := c.typed.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{FieldSelector: "spec.nonsense=1"})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field: %v", err)
	}
}

// Both versions of a kind show the same stored objects.
func TestSecondVersions(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	must(c.typed.CoreV1().Events(ns).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p"},
		Message: "hello", Count: 3,
	}, metav1.CreateOptions{}))(t)
	event := must(c.typed.EventsV1().Events(ns).Get(ctx, "e", metav1.GetOptions{}))(t)
	if event.Note != "hello" || event.Regarding.Name != "p" || event.DeprecatedCount != 3 {
		t.Errorf("events.k8s.io shows %v", event)
	}
	event.Note = "bye"
	must(c.typed.EventsV1().Events(ns).Update(ctx, event, metav1.UpdateOptions{}))(t)
	if got := must(c.typed.CoreV1().Events(ns).Get(ctx, "e", metav1.GetOptions{}))(t); got.Message != "bye" ||
		got.Count != 3 {
		t.Errorf("core shows %v", got)
	}
}

// A deletion with propagation Foreground deletes at once: no garbage collector would complete it.
func TestForegroundDeletion(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	must(c.typed.AppsV1().Deployments(ns).Create(t.Context(), testDeployment("d"), metav1.CreateOptions{}))(t)
	foreground := metav1.DeletePropagationForeground
	if err := c.typed.AppsV1().Deployments(ns).Delete(t.Context(), "d",
		metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.typed.AppsV1().Deployments(ns).Get(t.Context(), "d", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the delete: %v", err)
	}
}
