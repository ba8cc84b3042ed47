package kube

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// draft is an object that has been cut out, and is not judged yet. What it
// lacks is empty.
type draft struct {
	text             []byte // valid until the reader's next object
	encoding         Encoding
	apiVersion, kind string
	namespace, name  string
	uid, revision    string
	metadata         span // in JSON: zero or a valid part of text; managed lies within it
	managed          span
}

// status reads the draft of a Status, and reports whether it is one.
func (d draft) status() (*metav1.Status, bool) {
	if d.encoding == JSON {
		return parseStatus(d.text)
	}
	var s metav1.Status
	return &s, d.kind == "Status" && s.Unmarshal(d.text) == nil
}

// endsList reports whether a bookmark says that the initial state is complete
// (KEP-3157). It returns an error if the bookmark's annotations can't be read.
func (d draft) endsList() (bool, error) {
	annotations, err := d.annotations()
	if err != nil {
		return false, fmt.Errorf("a bookmark's annotations: %w", err)
	}
	return annotations[metav1.InitialEventsAnnotationKey] == "true", nil
}

func (d draft) annotations() (map[string]string, error) {
	if d.encoding == Protobuf {
		var o metav1.PartialObjectMetadata
		err := o.Unmarshal(d.text)
		return o.Annotations, err
	}
	var o struct {
		Metadata struct{ Annotations map[string]string }
	}
	err := json.Unmarshal(d.text, &o)
	return o.Metadata.Annotations, err
}

// title names the object, as far as that is known.
func (d draft) title() string {
	if d.name == "" {
		return "an object"
	}
	return "object " + keepwatch.Key{Namespace: d.namespace, Name: d.name}.String()
}

// violation is a breach of the API's contract in text that can be read.
type violation struct{ error }

// undecoded is why an object that could be cut out could not be decoded.
type undecoded struct{ error }

func (u undecoded) Unwrap() error { return u.error }

// maker makes objects of drafts. Its zero value is ready for use, and makes
// Objects.
type maker struct {
	decode      func(Raw) (keepwatch.Object, error) // nil for Objects
	dropManaged bool

	listed typeMeta  // what items are that do not say it themselves; empty while unknown
	last   *typeMeta // of the newest object, to be shared with the next
	said   typeMeta  // what the newest object said of itself,
	front  string    // and the members that it lacked
}

// object makes an object of d, which shares nothing with it. An object without a
// name or a revision can't be followed: a violation.
func (m *maker) object(d draft, r *row) (keepwatch.Object, error) {
	if d.name == "" {
		return nil, violation{errors.New("an object has no name")}
	}
	key := keepwatch.Key{Namespace: d.namespace, Name: d.name}
	revision, err := keepwatch.ParseRevision(d.revision)
	if err != nil {
		return nil, violation{fmt.Errorf("object %s: %w", key, err)}
	}
	said := typeMeta{d.apiVersion, d.kind}
	if m.decode != nil {
		return m.decoded(Raw{
			Key: key, UID: keepwatch.UID(d.uid), Revision: revision,
			Kind: said.or(m.listed).gvk(), Encoding: d.encoding, Body: d.text,
		})
	}
	o := &Object{
		key: key, uid: keepwatch.UID(d.uid), revision: revision,
		text: d.text, metadata: d.metadata, managed: d.managed, row: r,
	}
	m.own(o, said)
	return o, nil
}

func (m *maker) decoded(raw Raw) (keepwatch.Object, error) {
	o, err := m.decode(raw)
	if err != nil {
		return nil, undecoded{fmt.Errorf("object %s at revision %v: %w", raw.Key, raw.Revision, err)}
	}
	return o, nil
}

// complete gives o what the list turned out to consist of, after o was made.
func (m *maker) complete(o *Object) {
	if o.kind.or(m.listed) != *o.kind {
		m.own(o, *o.kind)
	}
}

// own gives o a type, and a text of its own of the right size, that begins with
// what o has not said of its type itself.
func (m *maker) own(o *Object, said typeMeta) {
	full := said.or(m.listed)
	if m.last == nil || *m.last != full || m.said != said {
		m.last, m.said, m.front = &full, said, said.lacking(full)
	}
	text := make([]byte, 0, len(o.text)+len(m.front))
	text = append(append(text, '{'), m.front...)
	o.text = append(text, o.text[1:]...)
	o.metadata, o.managed = o.metadata.moved(len(m.front)), o.managed.moved(len(m.front))
	o.kind = m.last
}

// typeMeta is an object's apiVersion and kind. One is shared by all objects of a
// page or a watch.
type typeMeta struct{ apiVersion, kind string }

// or fills what t lacks from other.
func (t typeMeta) or(other typeMeta) typeMeta {
	return typeMeta{cmp.Or(t.apiVersion, other.apiVersion), cmp.Or(t.kind, other.kind)}
}

func (t typeMeta) gvk() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(t.apiVersion, t.kind)
}

// lacking is the members that are in full but not in t, each with its comma.
func (t typeMeta) lacking(full typeMeta) string {
	var front []byte
	if t.apiVersion != full.apiVersion {
		front = append(appendQuoted(append(front, `"apiVersion":`...), full.apiVersion), ',')
	}
	if t.kind != full.kind {
		front = append(appendQuoted(append(front, `"kind":`...), full.kind), ',')
	}
	return string(front)
}

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error tells of invalid UTF-8, which is mended
	return dst
}
