package readpath

import (
	"encoding/json"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// listHeadAndTail returns the bytes of a list before and after its items. In protobuf the head
// contains the size of the body: of all items with their tags.
func (r *Resource) listHeadAndTail(result *watchcache.ListResult, as encoding,
	bodySize int) (head, tail []byte, err error) {
	about := metav1.ListMeta{
		ResourceVersion:    result.Revision.String(),
		Continue:           result.Continue,
		RemainingItemCount: result.Remaining,
	}
	if result.Shard != "" && (as == objectJSON || as == objectProtobuf) { // only lists of Go types have it
		about.ShardInfo = &metav1.ShardInfo{Selector: result.Shard}
	}
	switch {
	case isProtobuf(as):
		meta, err := about.Marshal()
		if err != nil {
			return nil, nil, err
		}
		field := protowire.AppendBytes(protowire.AppendTag(nil, listMeta, protowire.BytesType), meta)
		return append(appendUnknown(nil, r.kindOfList(as), len(field)+bodySize), field...), unknownEnd, nil
	case isTable(as):
		head, err := r.Table.appendHead(nil, about, true, as)
		return head, []byte("]}\n"), err
	case as == objectJSON && r.Dynamic:
		return r.dynamicHeadAndTail(about, result.Annotations)
	}
	meta, err := json.Marshal(about)
	if err != nil {
		return nil, nil, err
	}
	if len(result.Annotations) > 0 {
		annotations, _ := json.Marshal(result.Annotations) // strings
		meta = append(append(append(meta[:len(meta)-1], `,"annotations":`...), annotations...), '}')
	}
	head = append(appendKind(nil, r.kindOfList(as)), `"metadata":`...)
	head = append(append(head, meta...), `,"items":`...)
	if as == metadataJSON && result.Len() == 0 {
		return head, []byte("null}\n"), nil // as kube-apiserver
	}
	return append(head, '['), []byte("]}\n"), nil
}

// dynamicHeadAndTail returns those of a list of custom resources: the fields are in alphabetical
// order, and the metadata has "continue" even if it is empty.
func (r *Resource) dynamicHeadAndTail(about metav1.ListMeta,
	annotations map[string]string) (head, tail []byte, err error) {
	fields := map[string]any{"continue": about.Continue, "resourceVersion": about.ResourceVersion}
	if about.RemainingItemCount != nil {
		fields["remainingItemCount"] = *about.RemainingItemCount
	}
	if len(annotations) > 0 {
		fields["annotations"] = annotations
	}
	meta, err := json.Marshal(fields)
	if err != nil {
		return nil, nil, err
	}
	kind := r.kindOfList(objectJSON)
	head = []byte(`{"apiVersion":"` + kind.GroupVersion().String() + `","items":[`)
	tail = append([]byte(`],"kind":"`+kind.Kind+`","metadata":`), meta...)
	return head, append(tail, "}\n"...), nil
}
