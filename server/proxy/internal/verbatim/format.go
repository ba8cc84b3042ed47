package verbatim

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/source/kube"
)

// Format is how the server writes the objects of one resource in one representation. It is a runtime.Codec of
// documents.
type Format struct {
	kind schema.GroupVersionKind
	Representation
	Namespaced bool
	Dynamic    bool // see readpath.Resource.Dynamic
	fields     []selectable
	// bookmark and listEnd are how the server writes the objects of bookmarks, the second of the one that ends a
	// streaming list. Both are nil if that is not known.
	bookmark, listEnd []byte
	// unknownMetadata is true once an object was read whose metadata has members that are not known here, so that
	// PartialObjectMetadata can't be made of it.
	unknownMetadata atomic.Bool
}

// Layout is how the server writes the objects of a resource.
type Layout struct {
	Kind       schema.GroupVersionKind
	Namespaced bool
	Dynamic    bool // see readpath.Resource.Dynamic
	// ListEnds are the objects of the bookmarks that end streaming lists, by encoding. There are none if the server
	// has no streaming lists.
	ListEnds map[Encoding][]byte
}

// NewFormat returns how the server writes the objects of a resource in a representation.
func NewFormat(of Layout, as Representation) *Format {
	f := &Format{kind: of.Kind, Representation: as, Namespaced: of.Namespaced, Dynamic: of.Dynamic,
		fields: selectableFields[of.Kind]}
	f.setBookmarks(of.ListEnds[as.Encoding])
	return f
}

// setBookmarks records how the server writes bookmarks, given the object of one that ends a streaming list. It
// records nothing of an object that is not understood.
func (f *Format) setBookmarks(object []byte) {
	if object == nil {
		return
	}
	end, err := f.parse(f.Encoding.item(f, object))
	if err != nil || end.Annotations[metav1.InitialEventsAnnotationKey] != "true" || len(end.Annotations) > 1 {
		return
	}
	without := f.Encoding.withoutAnnotations(end)
	if plain, err := f.parse(without); err == nil && len(plain.Annotations) == 0 {
		f.bookmark, f.listEnd = without, end.text
	}
}

// bookmarkLike returns how the server writes the object of a bookmark with some metadata, nil if that is not known.
func (f *Format) bookmarkLike(m *metav1.ObjectMeta) []byte {
	if m.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		return f.listEnd
	}
	return f.bookmark
}

// Object returns an object that the server has sent, and its text as it stands in a list, which is a copy. It fails if
// the text is in another encoding.
func (f *Format) Object(raw kube.Raw) (Object, []byte, error) {
	if (raw.Encoding == kube.Protobuf) != f.Encoding.Protobuf() {
		return Object{}, nil, fmt.Errorf("the server sent %v", raw.Encoding)
	}
	text := f.Encoding.item(f, raw.Body)
	return Object{raw.Key, raw.UID, raw.Revision, xxhash.Sum64(text)}, text, nil
}

// HasUnknownMetadata reports whether no PartialObjectMetadata can be made of the objects.
func (f *Format) HasUnknownMetadata() bool { return f.unknownMetadata.Load() }

// parse returns the document with a text, which it retains.
func (f *Format) parse(text []byte) (*document, error) {
	o := &document{format: f, text: text, selected: fields.Set{}}
	for _, s := range f.fields {
		o.selected[s.label] = s.absent
	}
	if err := f.Encoding.decode(o); err != nil {
		return nil, err
	}
	if o.original = o.ResourceVersion; o.original == "" {
		return nil, errNoVersion
	}
	return o, nil
}

// Decode decodes the text of an object.
func (f *Format) Decode(text []byte, _ *schema.GroupVersionKind,
	_ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, err := f.parse(text)
	if err != nil {
		return nil, nil, err
	}
	return o, &f.kind, nil
}

// Encode writes an object as it stands in a list.
func (f *Format) Encode(o runtime.Object, w io.Writer) error {
	d, ok := o.(*document)
	if !ok {
		return fmt.Errorf("a %T is no document", o)
	}
	text, err := d.item()
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// Identifier names the codec.
func (f *Format) Identifier() runtime.Identifier { return "keepwatch-document" }

// NewDocument returns a document without content, to be decoded into.
func (f *Format) NewDocument() runtime.Object { return &document{format: f} }

// Attributes returns the labels and fields that selectors use.
func (f *Format) Attributes(o runtime.Object) (labels.Set, fields.Set, error) {
	d, ok := o.(*document)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is no document", o)
	}
	set := fields.Set{"metadata.name": d.Name}
	if d.Namespace != "" {
		set["metadata.namespace"] = d.Namespace
	}
	for label, value := range d.selected {
		set[label] = value
	}
	return d.Labels, set, nil
}

// FieldLabel checks one term of a field selector. The server words the error about others.
func (f *Format) FieldLabel(label, value string) (string, string, error) {
	if label == "metadata.name" || label == "metadata.namespace" && f.Namespaced { // not all others know it
		return label, value, nil
	}
	for _, s := range f.fields {
		if s.label == label {
			return label, value, nil
		}
	}
	return "", "", fmt.Errorf("field label not known: %s", label)
}
