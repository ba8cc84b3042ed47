package verbatim

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Object is what a watch cache knows of an object that it has not decoded.
type Object struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	// sum is the hash of the server's text. kube-apiserver writes one state in one representation always in the same
	// bytes: the members of a Go type in their order, those of maps sorted, in protobuf, too.
	sum uint64
}

var (
	_ store.Equaler = Object{}
	_ store.Summed  = Object{}
)

// Key returns the namespace and the name.
func (o Object) Key() keepwatch.Key { return o.key }

// UID returns the UID.
func (o Object) UID() keepwatch.UID { return o.uid }

// Revision returns the resourceVersion.
func (o Object) Revision() keepwatch.Revision { return o.revision }

// Sum returns the hash of the text; see store.Summed.
func (o Object) Sum() uint64 { return o.sum }

// Equal reports whether the server wrote both objects in the same bytes; see store.Equaler.
func (o Object) Equal(p keepwatch.Object) bool { return o == p }

// Deleted returns an object that was deleted while no proxy ran, as the watch cache makes it: metadata without labels.
func (f *Format) Deleted(r store.Record) (keepwatch.Object, []byte) {
	text, err := f.Encoding.metadataOnly(f, &metav1.ObjectMeta{
		Namespace: r.Key.Namespace, Name: r.Key.Name, UID: types.UID(r.UID), ResourceVersion: r.Revision.String(),
	})
	if err != nil {
		klog.ErrorS(err, "A deleted object can't be written", "object", r.Key) // its reader fails, too
	}
	return Object{r.Key, r.UID, r.Revision, 0}, text
}
