package testserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// oneFile is a folder of which only one file is there.
type oneFile struct {
	fs.FS
	name string
}

// ReadDir returns the one file.
func (f oneFile) ReadDir(string) ([]fs.DirEntry, error) {
	info, err := fs.Stat(f.FS, f.name)
	if err != nil {
		return nil, err
	}
	return []fs.DirEntry{fs.FileInfoToDirEntry(info)}, nil
}

// definitionsIn returns the CustomResourceDefinitions in the files of a folder and those below it, in the order of
// their paths.
func definitionsIn(files fs.FS) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var found []*apiextensionsv1.CustomResourceDefinition
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		definitions, err := parseDefinitions(content)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		found = append(found, definitions...)
		return nil
	})
	return found, err
}

func parseDefinitions(content []byte) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var found []*apiextensionsv1.CustomResourceDefinition
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var document map[string]any
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		o := unstructured.Unstructured{Object: document}
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if o.GetAPIVersion() != apiextensionsv1.SchemeGroupVersion.String() {
			return nil, fmt.Errorf("the definition %s is of %s: only %s is served", o.GetName(), o.GetAPIVersion(),
				apiextensionsv1.SchemeGroupVersion)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(document, definition); err != nil {
			return nil, fmt.Errorf("the definition %s: %w", o.GetName(), err)
		}
		found = append(found, definition)
	}
}
