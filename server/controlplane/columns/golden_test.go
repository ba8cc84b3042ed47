package columns

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// strictDecoder decodes all types of k8s.io/api, and APIServices.
var strictDecoder = func() runtime.Decoder {
	if err := apiregistrationv1.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
}()

var update = flag.Bool("update", false, "write what the code shows now into testdata")

// TestGet renders the manifests in testdata, one archive an API group, as `kubectl get -o wide`
// does, with kubectl's own printer. Of each resource, RESOURCE.yaml has the manifests and
// RESOURCE.txt what is shown of them at midnight, UTC, of 2000-01-01: the time in a bubble.
func TestGet(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	shown := map[schema.GroupResource]bool{}
	for _, path := range archives {
		group := strings.TrimSuffix(filepath.Base(path), ".txtar")
		if group == "core" {
			group = ""
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runArchive(t, path, group, shown) })
		})
	}
	for resource := range views {
		if !shown[resource] {
			t.Errorf("%s: no manifests in testdata", resource)
		}
	}
}

// runArchive renders each RESOURCE.yaml of an archive and compares with RESOURCE.txt behind it.
func runArchive(t *testing.T, path, group string, shown map[schema.GroupResource]bool) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(archive.Files); i += 2 {
		name := strings.TrimSuffix(archive.Files[i].Name, ".yaml")
		if archive.Files[i+1].Name != name+".txt" {
			t.Fatalf("%s: %s.txt does not follow %s.yaml", path, name, name)
		}
		resource := schema.GroupResource{Group: group, Resource: name}
		got, want := get(t, resource, archive.Files[i].Data), archive.Files[i+1].Data
		if !bytes.Equal(got, want) && !*update {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", resource, got, want)
		}
		archive.Files[i+1].Data = got
		shown[resource] = true
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// get returns what `kubectl get -o wide` prints of the manifests, without the spaces at line ends.
func get(t *testing.T, resource schema.GroupResource, manifests []byte) []byte {
	t.Helper()
	table := &metav1.Table{}
	for _, object := range decode(t, manifests) {
		one, err := For(resource).ConvertToTable(t.Context(), object, nil)
		if err != nil {
			t.Fatal(err)
		}
		table.ColumnDefinitions = one.ColumnDefinitions
		table.Rows = append(table.Rows, one.Rows...)
	}
	var printed strings.Builder
	if err := printers.NewTablePrinter(printers.PrintOptions{Wide: true}).PrintObj(table, &printed); err != nil {
		t.Fatal(err)
	}
	var trimmed bytes.Buffer
	for line := range strings.Lines(printed.String()) {
		fmt.Fprintln(&trimmed, strings.TrimRight(line, " \n"))
	}
	return trimmed.Bytes()
}

// decode reads manifests into the Go types of k8s.io/api. Misspelt fields are errors.
func decode(t *testing.T, manifests []byte) []runtime.Object {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	var objects []runtime.Object
	for {
		var raw runtime.RawExtension
		switch err := decoder.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return objects
		case err != nil:
			t.Fatal(err)
		}
		object, _, err := strictDecoder.Decode(raw.Raw, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, raw.Raw)
		}
		objects = append(objects, object)
	}
}

// TestDefinitions compares all column definitions with testdata/definitions.txt: clients use their
// types and priorities, not only their names.
func TestDefinitions(t *testing.T) {
	var got strings.Builder
	byName := func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) }
	for _, resource := range slices.SortedFunc(maps.Keys(views), byName) {
		fmt.Fprintln(&got, resource)
		for _, column := range views[resource].columns {
			if column.Description == "" {
				t.Errorf("%s: %s has no description", resource, column.Name)
			}
			fmt.Fprintf(&got, "\t%s: %s", column.Name, column.Type)
			if column.Format != "" {
				fmt.Fprintf(&got, " (%s)", column.Format)
			}
			if column.Priority > 0 {
				fmt.Fprint(&got, ", wide")
			}
			fmt.Fprintln(&got)
		}
	}
	const path = "testdata/definitions.txt"
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
}
