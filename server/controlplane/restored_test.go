package controlplane_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// restoredOf returns objects of a resource in JSON.
func restoredOf(objects map[string][]string) iter.Seq2[controlplane.RestoredObject, error] {
	return func(yield func(controlplane.RestoredObject, error) bool) {
		for resource, texts := range objects {
			for _, text := range texts {
				if !yield(controlplane.RestoredObject{Resource: schema.ParseGroupResource(resource), JSON: []byte(text)}, nil) {
					return
				}
			}
		}
	}
}

func keepAll(metav1.OwnerReference) bool { return true }

// A server begins with objects of another one: with their revisions, in a namespace that is made for them, and without
// what it does not have.
func TestRestoredMemory(t *testing.T) {
	const meta = `"metadata":{"namespace":"shop","name":"%s","uid":"u-%[1]s","resourceVersion":"%[2]s","ownerReferences":[` +
		`{"apiVersion":"v1","kind":"Secret","name":"s","uid":"0"},{"apiVersion":"v1","kind":"ConfigMap","name":"one","uid":"u-one"}]}`
	memory, done, err := controlplane.RestoreMemory(t.Context(), 4711, restoredOf(map[string][]string{
		"configmaps": {fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap",`+meta+`,"data":{"a":"b"}}`,
			"two", "4000")},
		"services": {fmt.Sprintf(`{"apiVersion":"v1","kind":"Service",`+meta+
			`,"spec":{"ports":[{"port":80}],"clusterIP":"None"}}`, "web", "17")},
		"widgets.example.com": {fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget",`+meta+`}`, "w",
			"18")},
		"apiservices.apiregistration.k8s.io": {
			`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.x","resourceVersion":"3"}}`},
		"mutatingadmissionpolicies.admissionregistration.k8s.io": {
			`{"apiVersion":"admissionregistration.k8s.io/v1beta1","kind":"MutatingAdmissionPolicy","metadata":{"name":"a"}}`},
	}), func(owner metav1.OwnerReference) bool { return owner.Kind != "Secret" })
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	if done.Objects != 2 || done.Unowned != 3 || !slices.Equal(done.Namespaces, []string{"shop"}) ||
		len(done.Skipped) != 3 {
		t.Errorf("%+v", done)
	}
	server := start(t, controlplane.Options{Memory: memory})
	client := kubernetes.NewForConfigOrDie(server.RESTConfig())
	two, err := client.CoreV1().ConfigMaps("shop").Get(t.Context(), "two", metav1.GetOptions{})
	if err != nil || two.UID != "u-two" || two.ResourceVersion != "4000" || two.Data["a"] != "b" ||
		len(two.OwnerReferences) != 1 {
		t.Errorf("%+v, %v", two, err)
	}
	if list, err := client.CoreV1().Services("shop").List(t.Context(), metav1.ListOptions{}); err != nil ||
		len(list.Items) != 1 || list.Items[0].ResourceVersion != "17" {
		t.Errorf("%+v, %v", list, err)
	}
	created, err := client.CoreV1().ConfigMaps("shop").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	if err != nil || len(created.ResourceVersion) != 4 || created.ResourceVersion <= "4711" {
		t.Errorf("%+v, %v", created, err)
	}
	if err := client.CoreV1().Namespaces().Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the namespace ends with its objects", func() bool {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), "shop", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// Objects that no server has answered are refused, each with its resource.
func TestRestoredMemoryRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}`:                               "configmaps a: ",
		`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"a","resourceVersion":"1"}}`: "configmaps: ",
		`{`: "configmaps: ",
	} {
		_, _, err := controlplane.RestoreMemory(t.Context(), 10, restoredOf(map[string][]string{"configmaps": {text}}),
			keepAll)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	failed := errors.New("the database is gone")
	_, _, err := controlplane.RestoreMemory(t.Context(), 10, func(yield func(controlplane.RestoredObject, error) bool) {
		yield(controlplane.RestoredObject{}, failed)
	}, keepAll)
	if !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
}
