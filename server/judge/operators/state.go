package operators

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
)

// typeSet is a set of resources.
type typeSet = map[schema.GroupVersionResource]bool

// fields are the values of an object by their paths, without what differs between any two runs.
type fields map[string]string

// state is the objects of a run by their keys, "configmaps default/web". Objects with random names have the key of
// their pattern, and a number: "configmaps default/web-*[2]".
type state map[string]fields

// state reads the objects of some types.
func (w *world) state(ctx context.Context, of typeSet) (state, error) {
	objects, resources, err := w.read(ctx, of)
	if err != nil {
		return nil, err
	}
	return newState(objects, resources, w.traffic.patterns(), w.given.uids), nil
}

// given is what a run begins with.
type given struct {
	state state              // of all types
	uids  map[types.UID]bool // which are those of every run
}

// initial is what a world has before its runs: what each of them begins with. It is read once, a request a type.
type initial struct {
	mu        sync.Mutex
	objects   []unstructured.Unstructured
	resources map[string]string // by kind, see read; nil before it is read
}

// readGiven returns what is there before an operator starts, except for types that are noise. Its writes will be
// named by patterns of random names.
func (w *world) readGiven(ctx context.Context, random []namePattern) (given, error) {
	i := &w.initial
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.resources == nil {
		all, err := w.listedTypes()
		if err != nil {
			return given{}, err
		}
		if i.objects, i.resources, err = w.read(ctx, all); err != nil {
			return given{}, err
		}
	}
	uids := map[types.UID]bool{}
	for _, o := range i.objects {
		uids[o.GetUID()] = true
	}
	return given{newState(i.objects, i.resources, random, uids), uids}, nil
}

// listedTypes returns the types that can be listed, except for noise.
func (w *world) listedTypes() (typeSet, error) {
	client, err := discovery.NewDiscoveryClientForConfig(w.RESTConfig())
	if err != nil {
		return nil, err
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	all := typeSet{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && !isNoise(version.Group, r.Name) {
				all[version.WithResource(r.Name)] = true
			}
		}
	}
	return all, nil
}

// read lists some types. It returns the resources by their kinds, too.
func (w *world) read(ctx context.Context, of typeSet) ([]unstructured.Unstructured, map[string]string, error) {
	var objects []unstructured.Unstructured
	resources := map[string]string{} // by kind
	for _, gvr := range w.oneVersion(of) {
		list, err := w.objects.Resource(gvr).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("list %s: %w", gvr.GroupResource(), err)
		}
		for _, o := range list.Items {
			resources[o.GetKind()+"."+o.GroupVersionKind().Group] = gvr.GroupResource().String()
			if !isDefault(o) {
				objects = append(objects, o)
			}
		}
	}
	return objects, resources, nil
}

// of returns the objects of some types.
func (s state) of(types typeSet) state {
	resources := map[string]bool{}
	for gvr := range types {
		resources[gvr.GroupResource().String()] = true
	}
	some := state{}
	for key, object := range s {
		if resource, _, _ := strings.Cut(key, " "); resources[resource] {
			some[key] = object
		}
	}
	return some
}

// and returns a state with the objects of those types from another one that are not among its own.
func (s state) and(others state, own typeSet) state {
	all := state{}
	maps.Copy(all, others)
	for key := range others.of(own) {
		delete(all, key)
	}
	maps.Copy(all, s)
	return all
}

// oneVersion returns the resources of a set, each in one version: who writes in another one writes the same objects.
func (w *world) oneVersion(of typeSet) []schema.GroupVersionResource {
	versions := map[schema.GroupResource]schema.GroupVersionResource{}
	for gvr := range of {
		preferred, err := w.mapper().ResourceFor(gvr.GroupResource().WithVersion(""))
		if err != nil || preferred.GroupResource() != gvr.GroupResource() {
			preferred = gvr // its definition is gone
		}
		versions[gvr.GroupResource()] = preferred
	}
	return slices.Collect(maps.Values(versions))
}

// isDefault reports whether every namespace has the object.
func isDefault(o unstructured.Unstructured) bool {
	return o.GetKind() == "ConfigMap" && o.GetName() == "kube-root-ca.crt" || o.GetKind() == "ServiceAccount" &&
		o.GetName() == "default"
}

// newState makes a state. Random names, and UIDs and times that the server has generated in this run, are replaced
// wherever they appear.
func newState(objects []unstructured.Unstructured, resources map[string]string, random []namePattern,
	given map[types.UID]bool) state {
	replaced := map[string]string{} // what the server has generated, and what stands for it
	keys := make([]string, len(objects))
	for i, o := range objects {
		resource := resources[o.GetKind()+"."+o.GroupVersionKind().Group]
		name := nameOf(random, resource, &o)
		if name != o.GetName() {
			replaced[o.GetName()] = name
		}
		keys[i] = Place{Resource: resource, Namespace: o.GetNamespace(), Name: name}.key()
		if !given[o.GetUID()] {
			replaced[string(o.GetUID())] = "UID of " + keys[i]
		}
	}
	var pairs []string
	for _, old := range slices.SortedFunc(maps.Keys(replaced), func(a, b string) int { return len(b) - len(a) }) {
		if old != "" {
			pairs = append(pairs, old, replaced[old])
		}
	}
	replacer := strings.NewReplacer(pairs...)
	alike := map[string][]fields{}
	for i, o := range objects {
		flat := fields{}
		flatten(flat, "", visible(o), replacer)
		alike[keys[i]] = append(alike[keys[i]], flat)
	}
	s := state{}
	for key, all := range alike {
		slices.SortFunc(all, func(a, b fields) int { return strings.Compare(a.String(), b.String()) })
		for i, flat := range all {
			s[numbered(key, i+1)] = flat
		}
	}
	return s
}

// visible returns an object without the metadata in which any two runs differ.
func visible(o unstructured.Unstructured) map[string]any {
	o = *o.DeepCopy()
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "deletionGracePeriodSeconds", "name",
		"namespace",
	} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", ForeignAnnotation)
	o.SetFinalizers(withoutForeign(&o))
	if notes := o.GetAnnotations(); len(notes) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
	}
	if versions, found, _ := unstructured.NestedSlice(o.Object, "spec", "versions"); found && isDefinition(o) {
		_ = unstructured.SetNestedSlice(o.Object, shortened(versions), "spec", "versions") // it was one before
	}
	return o.Object
}

func isDefinition(o unstructured.Unstructured) bool {
	kind := o.GroupVersionKind()
	return kind.Group == definitions.Group && kind.Kind == "CustomResourceDefinition"
}

// shortened returns the versions of a definition with a checksum in place of each schema, which may have a field for
// each line of its documentation.
func shortened(versions []any) []any {
	for _, version := range versions {
		if fields, ok := version.(map[string]any); ok {
			text, _ := json.Marshal(fields["schema"]) // it was JSON
			fields["schema"] = fmt.Sprintf("a schema with the checksum %08x", crc32.ChecksumIEEE(text))
		}
	}
	return versions
}

// contentOf returns what an object says, as a text, without metadata and status: these report, and decide nothing.
func contentOf(o *unstructured.Unstructured) string {
	flat := fields{}
	for name, value := range o.Object {
		if name != "metadata" && name != "status" {
			flatten(flat, "."+name, value, strings.NewReplacer())
		}
	}
	return flat.String()
}

var uid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// flatten adds the values below a path.
func flatten(into fields, path string, value any, replacer *strings.Replacer) {
	known := func(text string) string { return uid.ReplaceAllString(replacer.Replace(text), "a UID") }
	switch value := value.(type) {
	case map[string]any:
		times := map[string]int{}
		for _, name := range sortedKeys(value) {
			if name == "observedGeneration" {
				continue
			}
			at := known(name)
			if times[at]++; at != name { // several may differ in what is generated alone
				at = numbered(at, times[at])
			}
			flatten(into, path+"."+at, value[name], replacer)
		}
	case []any:
		for i, v := range value {
			at := fmt.Sprint(i)
			if strings.HasSuffix(path, ".conditions") {
				at = conditionType(value, i)
			}
			flatten(into, fmt.Sprintf("%s[%s]", path, at), v, replacer)
		}
	default:
		text := fmt.Sprint(value)
		if _, err := time.Parse(time.RFC3339Nano, text); err == nil {
			text = "a time"
		}
		into[strings.TrimPrefix(path, ".")] = known(text)
	}
}

// conditionType returns the type of a condition, by which it is known in whatever order conditions are, or its number
// in a list of something else.
func conditionType(list []any, i int) string {
	words := map[string]bool{}
	for _, item := range list {
		condition, _ := item.(map[string]any)
		word, _ := condition["type"].(string)
		words[word] = true
	}
	if condition, ok := list[i].(map[string]any); ok && !words[""] && len(words) == len(list) {
		return fmt.Sprint(condition["type"])
	}
	return fmt.Sprint(i)
}

// String is the fields in a fixed order.
func (f fields) String() string {
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(&b, "%s=%s\n", path, f[path])
	}
	return b.String()
}

// numbered returns the key of an object among its like, from 1.
func numbered(class string, n int) string {
	if n == 1 {
		return class
	}
	return fmt.Sprintf("%s[%d]", class, n)
}

// classOf returns a key without the number of an object among its like.
func classOf(key string) string {
	if at := strings.LastIndex(key, "["); at > 0 {
		return key[:at]
	}
	return key
}

// difference is one way in which a state differs from the one that is wanted.
type difference struct {
	key  string
	path string // empty if a whole object differs
	want string // empty if it should not be there
	have string // empty if it is missing
	left bool   // in a namespace that is gone
}

// isMissing reports whether a whole object is missing.
func (d difference) isMissing() bool { return d.path == "" && d.have == "" }

func (d difference) String() string {
	switch {
	case d.isMissing():
		return d.key + " is missing"
	case d.path == "":
		return d.key + " is there"
	case d.have == "":
		return fmt.Sprintf("%s: %s is missing, without the fault it is %q", d.key, d.path, d.want)
	case d.want == "":
		return fmt.Sprintf("%s: %s is %q, without the fault it is not there", d.key, d.path, d.have)
	default:
		return fmt.Sprintf("%s: %s is %q, without the fault %q", d.key, d.path, d.have, d.want)
	}
}

// there stands for an object as a whole.
const there = "there"

// differences compares two states, in the order of keys and paths.
func differences(want, have state) []difference {
	have = aligned(want, have)
	var all []difference
	for _, key := range union(want, have) {
		w, wanted := want[key]
		h, exists := have[key]
		switch {
		case !wanted:
			all = append(all, difference{key: key, have: there})
		case !exists:
			all = append(all, difference{key: key, want: there})
		default:
			for _, path := range union(w, h) {
				if w[path] != h[path] && !strings.Contains(h[path], ForeignAnnotation) { // an operator may copy it
					all = append(all, difference{key: key, path: path, want: w[path], have: h[path]})
				}
			}
		}
	}
	return all
}

// aligned numbers the objects of a state that have random names as those of another one are numbered that say the same.
func aligned(want, have state) state {
	result := state{}
	alike := map[string][]string{} // the keys of have
	for _, key := range sortedKeys(have) {
		if isPattern(key) {
			alike[classOf(key)] = append(alike[classOf(key)], key)
		} else {
			result[key] = have[key]
		}
	}
	for class, keys := range alike {
		var left []fields
		for _, key := range keys {
			if same := sameIn(want, class, have[key], result); same != "" {
				result[same] = have[key]
			} else {
				left = append(left, have[key])
			}
		}
		for n := 1; len(left) > 0; n++ {
			if _, taken := result[numbered(class, n)]; !taken {
				result[numbered(class, n)], left = left[0], left[1:]
			}
		}
	}
	return result
}

// sameIn returns the key of an object of a state that says the same, unless it is taken, or nothing.
func sameIn(s state, class string, as fields, taken state) string {
	for n := 1; ; n++ {
		key := numbered(class, n)
		if f, exists := s[key]; !exists {
			return ""
		} else if _, is := taken[key]; !is && maps.Equal(f, as) {
			return key
		}
	}
}

// remains are the objects of a namespace that is gone, and the namespace itself.
func remains(namespace string, have state) []difference {
	var all []difference
	for _, key := range slices.Sorted(maps.Keys(have)) {
		_, object, _ := strings.Cut(key, " ")
		if key == "namespaces "+namespace || strings.HasPrefix(object, namespace+"/") {
			all = append(all, difference{key: key, have: there, left: true})
		}
	}
	return all
}

// union returns the keys of two maps in their order.
func union[M ~map[string]V, V any](a, b M) []string {
	both := maps.Clone(a)
	if both == nil {
		both = M{}
	}
	maps.Copy(both, b)
	return slices.Sorted(maps.Keys(both))
}
