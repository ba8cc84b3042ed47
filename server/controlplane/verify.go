package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
)

const (
	// verifyPage is the number of values of one read: even of the largest values, they fit into one message.
	verifyPage = 32
	// damageShown is the number of damaged objects that an error names.
	damageShown = 5
	// definitionPrefix is the folder of CustomResourceDefinitions.
	definitionPrefix = "apiextensions.k8s.io/customresourcedefinitions"
)

// verifier checks each object in etcd against its key.
type verifier struct {
	client *clientv3.Client
	// resources are the resources that can be checked, by the prefixes of their keys below rootPrefix.
	resources map[string]resource
	// objects counts the checked objects, unknown the keys below rootPrefix that belong to no resource.
	objects, unknown int
	damaged          []string
}

// resource decodes the objects of one prefix.
type resource struct {
	namespaced bool
	decode     func(value []byte) (runtime.Object, error)
}

// verify reads all objects. It returns an error if one is damaged: its key does not have the form of
// its resource's keys, its value cannot be decoded, the value's kind, name or namespace does not match
// the key, or it has no UID. A flipped bit elsewhere in a value cannot be detected.
func (d *etcdDatabase) verify(ctx context.Context) (objects, unknown int, err error) {
	kinds, err := builtin.NewRegistry()
	if err != nil {
		return 0, 0, err
	}
	v := &verifier{client: d.client, resources: map[string]resource{definitionPrefix: {decode: decodeDefinition}}}
	for _, name := range kinds.Resources() {
		stored, ok := kinds.Stored(name)
		if !ok {
			return 0, 0, fmt.Errorf("%s is not a built-in resource", name)
		}
		v.resources[stored.Prefix] = resource{stored.Namespaced, func(value []byte) (runtime.Object, error) {
			o, _, err := stored.Codec.Decode(value, nil, stored.Object.DeepCopyObject())
			return o, err
		}}
	}
	if err := v.read(ctx, rootPrefix+"/"+definitionPrefix+"/", v.addDefinition); err != nil {
		return 0, 0, err
	}
	if err := v.read(ctx, rootPrefix+"/", v.check); err != nil {
		return 0, 0, err
	}
	if len(v.damaged) > 0 {
		shown := v.damaged[:min(len(v.damaged), damageShown)]
		return 0, 0,
			fmt.Errorf("%d of %d objects in etcd are damaged: %s; restore a copy, or start without --verify and delete them",
				len(v.damaged), v.objects, strings.Join(shown, "; "))
	}
	return v.objects, v.unknown, nil
}

// read calls do with each key below a prefix, at one revision.
func (v *verifier) read(ctx context.Context, prefix string, do func(key string, value []byte)) error {
	end, revision := clientv3.GetPrefixRangeEnd(prefix), int64(0)
	for from := prefix; ; {
		page, err := v.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(verifyPage),
			clientv3.WithRev(revision))
		if err != nil {
			return fmt.Errorf("read etcd: %w", err)
		}
		for _, kv := range page.Kvs {
			do(string(kv.Key), kv.Value)
		}
		if !page.More {
			return nil
		}
		from, revision = string(page.Kvs[len(page.Kvs)-1].Key)+"\x00", page.Header.Revision
	}
}

// addDefinition adds the resource of a definition.
func (v *verifier) addDefinition(_ string, value []byte) {
	o, err := decodeDefinition(value)
	if err != nil {
		return // check reports it
	}
	spec := o.(*apiextensionsv1.CustomResourceDefinition).Spec
	v.resources[spec.Group+"/"+spec.Names.Plural] = resource{spec.Scope == apiextensionsv1.NamespaceScoped,
		func(value []byte) (runtime.Object, error) {
			o, kind, err := unstructured.UnstructuredJSONScheme.Decode(value, nil, nil)
			if want := (schema.GroupKind{Group: spec.Group, Kind: spec.Names.Kind}); err == nil && kind.GroupKind() != want {
				err = fmt.Errorf("its kind is %s instead of %s", kind.GroupKind(), want)
			}
			return o, err
		}}
}

func decodeDefinition(value []byte) (runtime.Object, error) {
	return runtime.Decode(apiserver.Codecs.UniversalDeserializer(), value)
}

// check checks one object, and records its damage.
func (v *verifier) check(key string, value []byte) {
	below := strings.TrimPrefix(key, rootPrefix+"/")
	resource, path, ok := v.find(below)
	if !ok {
		v.unknown++
		return
	}
	v.objects++
	if err := resource.check(path, value); err != nil {
		v.damaged = append(v.damaged, fmt.Sprintf("%q: %s", key, strings.ReplaceAll(err.Error(), "\n", " ")))
	}
}

// find returns the resource of a key, by the first one or two levels, and the rest of the key.
func (v *verifier) find(below string) (found resource, path string, ok bool) {
	first, rest, _ := strings.Cut(below, "/")
	if found, ok = v.resources[first]; ok {
		return found, rest, true
	}
	second, rest, _ := strings.Cut(rest, "/")
	found, ok = v.resources[first+"/"+second]
	return found, rest, ok
}

func (r resource) check(path string, value []byte) error {
	decoded, err := r.decode(value)
	if err != nil {
		return err
	}
	o, err := meta.Accessor(decoded)
	if err != nil {
		return err
	}
	switch {
	case r.path(o) != path:
		return fmt.Errorf("the object is %q", r.path(o))
	case o.GetUID() == "":
		return errors.New("it has no UID")
	}
	return nil
}

// path returns an object's key below the resource's prefix.
func (r resource) path(o metav1.Object) string {
	if r.namespaced {
		return o.GetNamespace() + "/" + o.GetName()
	}
	return o.GetName()
}
