package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/keepwatch/keepwatch/test/peer"
)

const definitionName = "widgets." + customGroup

func widgetsIn(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: customGroup, Version: version, Resource: "widgets"}
}

// widgetsInTwo is a definition with the versions v1, which is stored, and v2.
func widgetsInTwo() *apiextensionsv1.CustomResourceDefinition {
	definition := widgets()
	second := *definition.Spec.Versions[0].DeepCopy()
	second.Name, second.Storage = "v2", false
	definition.Spec.Versions = append(definition.Spec.Versions, second)
	return definition
}

// TestStorageVersionSwitch changes the version that etcd has, while clients watch both versions. Watches that end
// resume, and receive each change once: kube-apiserver answers 410. Objects in both versions are read alike.
func TestStorageVersionSwitch(t *testing.T) {
	notShort(t)
	s := startBoth(t)
	s.define(widgetsInTwo())
	for _, version := range []string{"v1", "v2"} {
		for _, server := range []*peer.Server{s.ours, s.theirs} {
			s.serves(server, version)
		}
	}
	s.createWidget("default/a")
	begin := s.createWidget("default/b").GetResourceVersion()
	var watches []*watching
	for _, version := range []string{"v1", "v2"} {
		watches = append(watches, startResuming(t, client(t, s.ours, widgetsIn(version)), begin))
	}
	s.redefine(func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
		spec.Versions[0].Storage, spec.Versions[1].Storage = false, true
	})
	var want []string
	s.eventually("b is stored in v2", func() string {
		b := s.touch("b", fmt.Sprint(len(want)))
		want = append(want, "MODIFIED b@"+b.GetResourceVersion())
		return lacks(s.stored("default/b"), customGroup+"/v2")
	})
	if stored := s.stored("default/a"); !strings.Contains(stored, customGroup+"/v1") {
		t.Errorf("a was written again: %s", stored)
	}
	want = append(want, "ADDED c@"+s.createWidget("default/c").GetResourceVersion(), "DELETED a")
	if err := client(t, s.ours, widgetsIn("v1")).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, w := range watches {
		got := summaries(w.events(t, len(want)))
		last := len(got) - 1
		got[last], _, _ = strings.Cut(got[last], "@") // no response to a DELETE has its revision
		if !slices.Equal(got, want) {
			t.Errorf("watch %d: %q, want %q", i, got, want)
		}
	}
	for _, version := range []string{"v1", "v2"} {
		s.answersFromMemory("/apis/" + customGroup + "/" + version + "/widgets")
		s.sameReadsOf(version)
	}
}

// TestDeprecatedVersions deprecates a version, and then serves it no more. Clients of it receive the warning, those of
// the other version do not.
func TestDeprecatedVersions(t *testing.T) {
	notShort(t)
	s := startBoth(t)
	s.define(widgetsInTwo())
	const first, second = "/apis/" + customGroup + "/v1/widgets", "/apis/" + customGroup + "/v2/widgets"
	s.shows(first, asJSON, `"WidgetList"`)
	s.createWidget("default/a")
	for _, warning := range []*string{nil, ptr.To("v1 ends soon")} {
		s.redefine(func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
			spec.Versions[0].Deprecated, spec.Versions[0].DeprecationWarning = true, warning
		})
		s.shows(first, asJSON, ptr.Deref(warning, "is deprecated"))
		s.sameReadsOf("v1")
		s.answersFromMemory(second)
		s.sameReadsOf("v2")
	}
	s.redefine(func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
		spec.Versions[0].Deprecated, spec.Versions[0].DeprecationWarning = false, nil
	})
	s.answersFromMemory(first)
	s.sameReadsOf("v1")
	s.redefine(func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
		spec.Versions[0].Served, spec.Versions[0].Storage, spec.Versions[1].Storage = false, false, true
	})
	s.shows(first, asJSON, "404")
	s.same(first, asJSON, "")
	s.answersFromMemory(second)
	s.sameReadsOf("v2")
}

// TestDefinitionsEnd deletes a definition while clients watch, and creates one of the same name with another scope. The
// watches receive the deletions and end. Later reads show nothing of the old objects, which etcd's history has.
func TestDefinitionsEnd(t *testing.T) {
	notShort(t)
	s := startBoth(t)
	s.define(widgets())
	const all, one = "/apis/" + customGroup + "/v1/widgets", "/apis/" + customGroup + "/v1/namespaces/default/widgets/a"
	for _, server := range []*peer.Server{s.ours, s.theirs} {
		s.serves(server, "v1")
	}
	begin := s.createWidget("default/a").GetResourceVersion()
	s.answersFromMemory(one)
	var watches []*watching
	for _, server := range []*peer.Server{s.ours, s.theirs} {
		watches = append(watches, startWatch(t, client(t, server, widgetsIn("v1")), begin))
	}
	s.createWidget("default/b")
	if err := s.client.Resource(definitions).Delete(t.Context(), definitionName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, w := range watches {
		var got []string
		for _, e := range w.events(t, 3) {
			got = append(got, string(e.Type)+" "+e.Object.(*unstructured.Unstructured).GetName())
		}
		if got[0] != "ADDED b" || !strings.Contains(strings.Join(got[1:], ", "), "DELETED a") ||
			!strings.Contains(strings.Join(got[1:], ", "), "DELETED b") {
			t.Errorf("watch %d: %q", i, got)
		}
		s.eventually(fmt.Sprint("watch ", i, " ends"), w.open)
	}
	for _, path := range []string{all, one, all + "?watch=1&timeoutSeconds=1"} {
		s.shows(path, asJSON, "404")
		s.same(path, asJSON, "")
	}

	clusterWide := widgets()
	clusterWide.Spec.Scope = apiextensionsv1.ClusterScoped
	s.eventually("the definition is created again", func() string {
		if err := s.tryDefine(clusterWide); err != nil {
			return err.Error()
		}
		return ""
	})
	for _, server := range []*peer.Server{s.ours, s.theirs} {
		s.serves(server, "v1")
	}
	s.createWidget("/c")
	s.answersFromMemory(all + "/c")
	for _, path := range []string{all, all + "/c", all + "/a", one, "/apis/" + customGroup +
		"/v1/namespaces/default/widgets", all + "?fieldSelector=metadata.namespace%3Ddefault"} {
		s.same(path, asJSON, "")
	}
	s.resumesWithout(begin, "a", "b")
}

// resumesWithout resumes a watch of widgets at a revision of a former definition. It may receive Expired, but no event
// of that definition's objects, whose keys no object of this one can have.
func (s *both) resumesWithout(revision string, former ...string) {
	s.t.Helper()
	w, err := s.client.Resource(widgetsIn("v1")).Watch(s.t.Context(), metav1.ListOptions{ResourceVersion: revision,
		TimeoutSeconds: ptr.To[int64](1)})
	if apierrors.IsResourceExpired(err) {
		return
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		if ok {
			for _, name := range former {
				if o.GetName() == name {
					s.t.Errorf("a watch that resumes receives %s %s", e.Type, name)
				}
			}
		} else if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !apierrors.IsResourceExpired(err) {
			s.t.Errorf("a watch that resumes receives %s %v", e.Type, err)
		}
	}
}

// serves waits until a server answers lists of widgets in a version.
func (s *both) serves(server *peer.Server, version string) {
	s.t.Helper()
	path := "/apis/" + customGroup + "/" + version + "/widgets"
	s.eventually(path+" is served", func() string { return s.get(server, path, asJSON, "").lacks(`"WidgetList"`) })
}

// touch labels a widget.
func (s *both) touch(name, label string) *unstructured.Unstructured {
	s.t.Helper()
	return s.patchWidget(name, fmt.Sprintf(`{"metadata":{"labels":{"touched":%q}}}`, label))
}

// patchWidget changes a widget of the default namespace, in v1.
func (s *both) patchWidget(name, patch string) *unstructured.Unstructured {
	s.t.Helper()
	o, err := s.client.Resource(widgetsIn("v1")).Namespace("default").Patch(s.t.Context(), name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

// stored returns what etcd has of a widget.
func (s *both) stored(at string) string {
	s.t.Helper()
	etcd, err := s.ours.Etcd().Client()
	if err != nil {
		s.t.Fatal(err)
	}
	defer etcd.Close()
	answer, err := etcd.Get(s.t.Context(), "/registry/"+customGroup+"/widgets/"+at)
	if err != nil || len(answer.Kvs) != 1 {
		s.t.Fatal(answer, err)
	}
	return string(answer.Kvs[0].Value)
}

// lacks returns a text that does not contain a mark.
func lacks(text, mark string) string {
	if strings.Contains(text, mark) {
		return ""
	}
	return text
}
