package listwatch

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/deletions"
	"github.com/keepwatch/keepwatch/source/kube"
)

// parsedEvent is one event of a watch.
type parsedEvent struct {
	change   keepwatch.Change // empty for a bookmark
	revision keepwatch.Revision
	bookmark bool
	endsList bool // a bookmark that ends a streaming list
}

// parse parses an event. newest is the greatest revision before it. ok is false if the event
// changes nothing.
func (s *Source) parse(event watch.Event,
	newest keepwatch.Revision) (e parsedEvent, ok bool, failure *keepwatch.Failure) {
	if event.Type == watch.Error {
		return e, false, s.failureOf(event.Object)
	}
	switch event.Type {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
	default:
		return e, false, s.violation(fmt.Errorf("unknown event type %q", event.Type))
	}
	about, err := meta.Accessor(event.Object)
	if err != nil {
		return e, false, s.violation(err)
	}
	if event.Type == watch.Bookmark {
		return s.parseBookmark(about, newest)
	}
	if s.versions == nil {
		parsed, err := parseVersioned(event.Object)
		if err == nil {
			s.readFirst(event.Object)
			e.revision = parsed.Revision()
			e.change = keepwatch.Change{Type: changeTypes[event.Type], Revision: e.revision, Object: parsed}
			s.newest = max(s.newest, e.revision)
			return e, true, nil
		}
		if s.versioned {
			return e, false, s.violation(err)
		}
		s.assignVersions()
	}
	change, ok := s.versions.event(event.Type, event.Object)
	s.publishToken()
	if ok {
		s.newest = s.versions.last
		e.change, e.revision = change, change.Revision
	}
	return e, ok, nil
}

// readFirst notes that an object with a revision was read, and of the first one whether it is an Event.
func (s *Source) readFirst(o runtime.Object) {
	if !s.versioned {
		s.versioned, s.leased = true, isEvent(o)
	}
}

// isEvent reports whether an object is an Event, whose deletion may share its revision with others.
func isEvent(o runtime.Object) bool {
	if kind := o.GetObjectKind().GroupVersionKind(); kind.Kind != "" {
		return kind.Kind == "Event" && deletions.Leased(schema.GroupResource{Group: kind.Group, Resource: "events"})
	}
	of := reflect.TypeOf(o)
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	return of.Name() == "Event" &&
		(of.PkgPath() == "k8s.io/api/core/v1" || strings.HasPrefix(of.PkgPath(), "k8s.io/api/events/"))
}

var changeTypes = map[watch.EventType]keepwatch.ChangeType{
	watch.Added: keepwatch.Added, watch.Modified: keepwatch.Modified, watch.Deleted: keepwatch.Deleted,
}

// parseBookmark parses a bookmark. If the server has no revisions, the bookmark only has the
// token to resume from.
func (s *Source) parseBookmark(about metav1.Object,
	newest keepwatch.Revision) (e parsedEvent, ok bool, failure *keepwatch.Failure) {
	e = parsedEvent{bookmark: true, endsList: about.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"}
	if s.versions != nil {
		s.versions.setToken(about.GetResourceVersion())
		s.publishToken()
		e.revision = newest
		return e, true, nil
	}
	revision, err := keepwatch.ParseRevision(about.GetResourceVersion())
	if err == nil && revision < newest {
		err = fmt.Errorf("the bookmark %d is below revision %d of an earlier event", revision, newest)
	}
	if err != nil {
		return e, false, s.violation(err)
	}
	e.revision = revision
	s.newest = max(s.newest, revision)
	return e, true, nil
}

// failureOf returns the failure of an ERROR event.
func (s *Source) failureOf(object runtime.Object) *keepwatch.Failure {
	if object == nil {
		return keepwatch.Failed(keepwatch.UnknownStatus, "watch %s: %w", s.name, errors.New("an error without a status"))
	}
	return kube.FailureOf("watch "+s.name, apierrors.FromObject(object))
}

func (s *Source) violation(err error) *keepwatch.Failure {
	return keepwatch.Failed(keepwatch.ProtocolViolation, "watch %s: %w", s.name, err)
}
