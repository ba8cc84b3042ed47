package past

import (
	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// namedObject is an object that an Event names.
type namedObject struct {
	Role, Text string
	URL        string // of its state of then, empty if the history does not have such objects
	Late       bool   // the history of such objects begins after that: the state is the first that it has
}

// named returns the objects that a state of an Event names, none for another object. They are not read: the page of
// each asks who may see it, and says if its state of then is not known.
func (r *pageRead) named(s *sink.State) (all []namedObject, err error) {
	if !history.AreEvents(r.objects.Resource) {
		return nil, nil
	}
	subject, related, err := history.Named(s)
	if err != nil || subject.Kind == "" { // a history of metadata names none
		return nil, err
	}
	about, err := r.namedObject("About", subject, s)
	if err != nil || related == nil {
		return []namedObject{about}, err
	}
	other, err := r.namedObject("Related", *related, s)
	return []namedObject{about, other}, err
}

// namedObject returns an object that an Event names. Its state of then is the one when the Event was written.
func (r *pageRead) namedObject(role string, named history.Subject, event *sink.State) (o namedObject, err error) {
	o = namedObject{Role: role,
		Text: named.Kind + " " + keepwatch.Key{Namespace: named.Namespace, Name: named.Name}.String()}
	t := named.TypeIn(r.types)
	if t == nil || named.Name == "" || t.Namespaced && named.Namespace == "" {
		return o, nil
	}
	q := r.query.withoutChange()
	q.Type, q.Namespace, q.Name = t.Resource, "", named.Name
	if t.Namespaced {
		q.Namespace = named.Namespace
	}
	stream, err := r.view.StreamOf(t.Resource, q.Namespace)
	if err != nil {
		return o, nil // another namespace is stored
	}
	from, err := r.view.StreamOf(event.Resource, event.Key.Namespace)
	if err != nil {
		return o, nil
	}
	at, late, err := r.view.MomentOf(event, from, stream)
	if err != nil {
		return o, err
	}
	q.At, o.Late = at.String(), late
	o.URL = q.URL() + "#list"
	return o, nil
}
