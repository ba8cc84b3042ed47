package storage

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Listing is what a list shows, before it is made into objects or bytes. It costs
// no copy of any object and may be held as long as a snapshot.
type Listing struct {
	// Revision is what the state is of.
	Revision keepwatch.Revision
	// Segments are the objects in key order, when a list shows all that is in its
	// range; else they are empty.
	Segments []store.Segment
	// Selected are the objects in key order, when a list shows those that match.
	Selected []*Object
	// Continue is the token of the next page, empty if there is none, and Remaining how
	// many objects are on it and behind, nil if that is not known.
	Continue  string
	Remaining *int64
}

// List is GetList before the objects are decoded. It fails where only etcd can
// answer, too, or the store is not ready: ask GetList then.
func (s *Storage) List(ctx context.Context, key string, options apistorage.ListOptions) (*Listing, error) {
	if err := s.ReadinessCheck(); err != nil {
		return nil, err
	}
	l, err := s.list(ctx, key, options)
	if err != nil {
		return nil, err
	}
	listing, err := l.read(s, ctx)
	if l.of.consistent() && (err == nil || apistorage.IsUnreachable(err)) {
		s.meter.consistent(err, false) // else GetList will
	}
	return listing, err
}

// read finds the state that a list asks for, and what of it the list shows.
func (l list) read(s *Storage, ctx context.Context) (*Listing, error) {
	if !l.recursive && l.of.match == metav1.ResourceVersionMatchExact {
		if err := s.isPast(ctx, l.of.revision); err != nil {
			return nil, err
		}
	}
	snapshot, err := l.of.state(s, ctx)
	if err != nil {
		return nil, err
	}
	listing := &Listing{Revision: snapshot.Revision()}
	var last keepwatch.Key
	var more bool
	if l.predicate.Empty() {
		last, more, err = l.cut(snapshot, listing)
	} else {
		last, more, err = l.choose(s, snapshot, listing)
	}
	if err != nil || !more {
		return listing, err
	}
	count := int64(0)
	if l.predicate.Empty() {
		count = l.count(snapshot, l.start)
	}
	end := l.key + strings.TrimPrefix(last.String(), l.path)
	listing.Continue, listing.Remaining, err = apistorage.PrepareContinueToken(end, l.key, int64(listing.Revision), count, true, l.options)
	return listing, err
}

// cut takes a page's segments, and tells what its last key is and whether there is
// anything behind it.
func (l list) cut(snapshot *store.Snapshot, into *Listing) (last keepwatch.Key, more bool, err error) {
	left := int(l.predicate.Limit)
	for segment := range l.segments(snapshot, l.start) {
		if l.predicate.Limit > 0 {
			if left == 0 {
				return last, true, nil
			}
			if left < segment.Len() {
				segment, more = segment.Part(0, left), true
			}
			left -= segment.Len()
		}
		last = segment.At(segment.Len() - 1).Key()
		into.Segments = append(into.Segments, segment)
		if more {
			break
		}
	}
	return last, more, nil
}

// choose takes the objects of a page that match.
func (l list) choose(s *Storage, snapshot *store.Snapshot, into *Listing) (last keepwatch.Key, more bool, err error) {
	for o := range l.candidates(s, snapshot) {
		if l.predicate.Limit > 0 && int64(len(into.Selected)) == l.predicate.Limit {
			return last, true, nil
		}
		known, err := s.Read(o)
		if err != nil {
			return last, false, fallback(err)
		}
		if known.matches(l.predicate) {
			into.Selected = append(into.Selected, known)
			last = known.Key()
		}
	}
	return last, false, nil
}

// All iterates over the listed objects, in key order.
func (l *Listing) All() iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		for _, o := range l.Selected {
			if !yield(o) {
				return
			}
		}
		for _, segment := range l.Segments {
			for o := range segment.All() {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// Len is the number of listed objects.
func (l *Listing) Len() int {
	n := len(l.Selected)
	for _, segment := range l.Segments {
		n += segment.Len()
	}
	return n
}

// fill makes a list object.
func (l *Listing) fill(s *Storage, into runtime.Object) error {
	pointer, err := meta.GetItemsPtr(into)
	if err != nil {
		return err
	}
	items, err := conversion.EnforcePtr(pointer)
	if err != nil || items.Kind() != reflect.Slice {
		return fmt.Errorf("need a pointer to a slice, got %T: %w", pointer, err)
	}
	known := make([]runtime.Object, 0, l.Len())
	for held := range l.All() {
		o, err := s.Read(held)
		if err != nil {
			return fallback(err)
		}
		decoded, err := o.Decoded()
		if err != nil {
			return ErrElsewhere
		}
		known = append(known, decoded)
	}
	items.Set(reflect.MakeSlice(items.Type(), len(known), len(known)))
	for i, o := range known {
		items.Index(i).Set(reflect.ValueOf(o).Elem())
	}
	return s.versioner.UpdateList(into, uint64(l.Revision), l.Continue, l.Remaining)
}
