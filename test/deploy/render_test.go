package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// installed is the namespace of the releases. A release has its chart's name.
const installed = "keepwatch"

// values are the values of a chart that differ from its defaults.
type values = map[string]any

func chartDir(name string) string { return filepath.Join("..", "..", "deploy", "helm", name) }

// render returns the text of a chart's files, as helm template makes them.
func render(name string, v values) (map[string]string, error) {
	chart, err := loader.LoadDir(chartDir(name))
	if err != nil {
		return nil, err
	}
	return renderChart(chart, name, installed, v)
}

func renderChart(chart *chartv2.Chart, name, namespace string, v values) (map[string]string, error) {
	release := common.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, v, release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// manifests returns the objects of a chart, in the order of their files.
func manifests(t *testing.T, name string, v values) []*unstructured.Unstructured {
	t.Helper()
	files, err := render(name, v)
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, files)
}

func parsed(t *testing.T, files map[string]string) []*unstructured.Unstructured {
	t.Helper()
	var names []string
	for file := range files {
		if strings.HasSuffix(file, ".yaml") {
			names = append(names, file)
		}
	}
	slices.Sort(names)
	var all []*unstructured.Unstructured
	for _, file := range names {
		all = append(all, objects(t, file, files[file])...)
	}
	return all
}

// objects parses the documents of a file.
func objects(t *testing.T, file, text string) (all []*unstructured.Unstructured) {
	t.Helper()
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(file, err)
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &o.Object); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, document)
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// find converts the only object of a kind.
func find[T any](t *testing.T, all []*unstructured.Unstructured, kind string) *T {
	t.Helper()
	var found *T
	for _, o := range all {
		if o.GetKind() != kind {
			continue
		}
		if found != nil {
			t.Fatalf("two objects of kind %s", kind)
		}
		found = new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, found, true); err != nil {
			t.Fatal(err)
		}
	}
	if found == nil {
		t.Fatalf("no object of kind %s", kind)
	}
	return found
}
