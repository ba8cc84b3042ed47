package differential

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Sample is a valid object of a kind, and changes of it. All are JSON; a change may be empty.
type Sample struct {
	Resource               schema.GroupVersionResource
	Object, Change, Status string
}

// ReadSamples reads the objects with which Kubernetes tests the storage of each kind. It reads them from
// the source: a program that imports them links all of kube-apiserver. dir is the folder of the
// module k8s.io/kubernetes.
func ReadSamples(dir string) ([]Sample, error) {
	file, err := parser.ParseFile(gotoken.NewFileSet(), filepath.Join(dir, "test", "integration", "etcd", "data.go"), nil,
		0)
	if err != nil {
		return nil, err
	}
	var all []Sample
	ast.Inspect(file, func(n ast.Node) bool {
		entry, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, isCall := entry.Key.(*ast.CallExpr)
		value, isLiteral := entry.Value.(*ast.CompositeLit)
		if !isCall || !isLiteral || len(key.Args) != 3 {
			return true
		}
		s := Sample{Resource: schema.GroupVersionResource{Group: text(key.Args[0]), Version: text(key.Args[1]),
			Resource: text(key.Args[2])}}
		for _, e := range value.Elts {
			s.set(e)
		}
		if s.Object != "" {
			all = append(all, s)
		}
		return false
	})
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no samples", dir)
	}
	return all, nil
}

func (s *Sample) set(e ast.Expr) {
	field, ok := e.(*ast.KeyValueExpr)
	if !ok {
		return
	}
	name, ok := field.Key.(*ast.Ident)
	if !ok {
		return
	}
	switch name.Name {
	case "Stub":
		s.Object = text(field.Value)
	case "MutatedStub":
		s.Change = text(field.Value)
	case "StatusStub":
		s.Status = text(field.Value)
	}
}

// sampleNamespace is the namespace of a sample, in its content.
const sampleNamespace = "sample-namespace"

// text returns the value of an expression of strings.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		value, _ := strconv.Unquote(e.Value)
		return value
	case *ast.BinaryExpr:
		return text(e.X) + text(e.Y)
	case *ast.Ident:
		if e.Name == "namespace" {
			return sampleNamespace
		}
		return "example.com/" + e.Name + ":1" // an image
	}
	return ""
}
