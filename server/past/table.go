package past

import (
	"context"
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
	"github.com/keepwatch/keepwatch/server/controlplane/columns"
	"github.com/keepwatch/keepwatch/server/customcolumns"
	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/source/history"
)

// definitions is the resource of the definitions of custom resources.
const definitions = "customresourcedefinitions.apiextensions.k8s.io"

// tables knows the Go types of built-in kinds, and their columns.
type tables struct {
	scheme     *runtime.Scheme
	serializer runtime.NegotiatedSerializer
}

// jsonOnly is the serializers of JSON and of nothing else: the history has no protobuf.
type jsonOnly struct{ runtime.NegotiatedSerializer }

func (j jsonOnly) SupportedMediaTypes() (all []runtime.SerializerInfo) {
	for _, info := range j.NegotiatedSerializer.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON {
			all = append(all, info)
		}
	}
	return all
}

func newTables() (*tables, error) {
	scheme, err := builtin.PublicScheme()
	if err != nil {
		return nil, err
	}
	return &tables{scheme, jsonOnly{serializer.NewCodecFactory(scheme).WithoutConversion()}},
		apiextensionsv1.AddToScheme(scheme)
}

// format returns how the objects of a type are written.
func (t *tables) format(of history.Type) *format {
	f := &format{
		kind: schema.GroupVersionKind{Group: of.Group(), Version: of.Version, Kind: of.Kind}, namespaced: of.Namespaced,
		fields: selectableFields[of.Resource],
	}
	f.dynamic = !t.scheme.Recognizes(f.kind)
	return f
}

// tableSource is what the columns of a resource depend on: the text of the columns in its definition, empty for
// built-in kinds.
type tableSource string

// source returns what the columns of a resource depend on at its point.
func (t *tables) source(ctx context.Context, v *history.View, of *resolved) (tableSource, error) {
	if !of.format.dynamic {
		return "", nil
	}
	stream, err := v.StreamOf(definitions, "")
	if err != nil {
		return "", nil // the history has no definitions
	}
	at := of.point
	if stream.Line != of.stream.Line {
		points, err := v.Points(ctx, history.Moment{Time: of.time}, true, stream)
		if err != nil {
			return "", err
		}
		at = points.Of(stream)
	}
	definition, err := definitionOf(ctx, v, of.typ, at)
	if err != nil || definition == nil {
		return "", err
	}
	for _, version := range definition.Spec.Versions {
		if version.Name == of.typ.Version {
			text, err := json.Marshal(version.AdditionalPrinterColumns)
			return tableSource(text), err
		}
	}
	return "", nil
}

// table returns the table of a resource with the ages of now.
func (t *tables) table(of *resolved) (*readpath.Table, error) {
	if of.format.dynamic {
		var defined []apiextensionsv1.CustomResourceColumnDefinition
		if of.table != "" {
			if err := json.Unmarshal([]byte(of.table), &defined); err != nil {
				return nil, err
			}
		}
		known, err := customcolumns.NewTable(defined)
		if err != nil {
			return nil, err
		}
		return &readpath.Table{Columns: known.Columns, Row: func(o runtime.Object) (metav1.TableRow, error) {
			custom := &unstructured.Unstructured{}
			if err := unmarshal(o, &custom.Object); err != nil {
				return metav1.TableRow{}, err
			}
			return known.Row(custom)
		}}, nil
	}
	known := columns.Of(of.resource.GroupResource())
	if known == nil {
		return defaultTable, nil
	}
	kind := of.format.kind
	return &readpath.Table{Columns: known.Columns, Row: func(o runtime.Object) (metav1.TableRow, error) {
		typed, err := t.scheme.New(kind)
		if err != nil {
			return metav1.TableRow{}, err
		}
		if err := unmarshal(o, typed); err != nil {
			return metav1.TableRow{}, err
		}
		return known.Row(typed)
	}}, nil
}

// unmarshal decodes the text of a document.
func unmarshal(o runtime.Object, into any) error {
	d, ok := o.(*document)
	if !ok {
		return fmt.Errorf("a %T is no document", o)
	}
	text, err := d.MarshalJSON()
	if err != nil {
		return err
	}
	return utiljson.Unmarshal(text, into)
}

// defaultTable has the columns of resources without columns of their own, as k8s.io/apiserver has them.
var defaultTable = &readpath.Table{
	Columns: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
		{Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
	},
	Row: func(o runtime.Object) (metav1.TableRow, error) {
		d, ok := o.(*document)
		if !ok {
			return metav1.TableRow{}, fmt.Errorf("a %T is no document", o)
		}
		return metav1.TableRow{Cells: []any{d.Name, d.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z")}}, nil
	},
}
