package past

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/server/past/schemas"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// serveOpenAPI answers the schemas of the types that the history has at a moment: those of custom resources are in
// their definitions at the moment, and those of built-in kinds are the newest that this program knows.
func (s *Server) serveOpenAPI(w http.ResponseWriter, q *http.Request, p *momentPath, types []history.Type) {
	version := strings.Trim(strings.TrimPrefix(q.URL.Path, schemas.Path), "/")
	of := schemas.InVersion(types, version)
	switch {
	case version == "":
		s.answer(w, q, p, schemas.Index(types))
		return
	case len(of) == 0:
		s.fail(w, q, p, notFound("the history has no "+q.URL.Path))
		return
	}
	var custom []*apiextensionsv1.CustomResourceDefinition
	err := s.config.History.View(q.Context(), func(v *history.View) (err error) {
		custom, err = definitionsOf(q.Context(), v, p.moment, of)
		return err
	})
	var document json.RawMessage
	if err == nil {
		document, err = schemas.Document(s.tables.scheme, of, custom)
	}
	if err != nil {
		s.fail(w, q, p, s.late(q.Context(), momentError(err)))
		return
	}
	s.answer(w, q, p, document)
}

// definitionsOf returns the definitions of types at a moment, of those that have one.
func definitionsOf(ctx context.Context, v *history.View, m history.Moment,
	types []history.Type) (all []*apiextensionsv1.CustomResourceDefinition, err error) {
	stream, err := v.StreamOf(definitions, "")
	if err != nil {
		return nil, nil // the history has no definitions
	}
	m, err = v.In(ctx, m, stream)
	var points *history.Points
	if err == nil {
		points, err = v.Points(ctx, m, true, stream)
	}
	if errors.As(err, new(*history.Unknown)) {
		return nil, nil // it had none at the moment
	}
	if err != nil {
		return nil, err
	}
	for _, of := range types {
		definition, err := definitionOf(ctx, v, of, points.Of(stream))
		if err != nil {
			return nil, err
		}
		if definition != nil && slices.ContainsFunc(definition.Spec.Versions,
			func(d apiextensionsv1.CustomResourceDefinitionVersion) bool { return d.Name == of.Version }) {
			all = append(all, definition)
		}
	}
	return all, nil
}

// definitionOf returns the definition of a custom resource at a point, nil if there is none, or one that cannot be
// decoded: the resource has neither columns nor a schema then.
func definitionOf(ctx context.Context, v *history.View, of history.Type,
	at sink.Point) (*apiextensionsv1.CustomResourceDefinition, error) {
	states, err := v.At(ctx, history.Objects{Resource: definitions, Name: of.Resource}, at)
	if err != nil || len(states) == 0 {
		return nil, err
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(states[0].Object, definition); err != nil {
		klog.ErrorS(err, "A definition of the history cannot be decoded", "resource", of.Resource, "revision",
			states[0].From.Revision)
		return nil, nil
	}
	return definition, nil
}
