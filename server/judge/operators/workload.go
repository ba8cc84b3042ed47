package operators

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// action is what a step does with its objects.
type action uint8

const (
	apply   action = iota + 1 // creates or changes them
	patch                     // merges them into existing ones
	remove                    // deletes existing ones
	await                     // waits until existing ones have their fields
	advance                   // moves the time of the simulation
	omit                      // nothing: see only
)

// step is one file of a workload.
type step struct {
	name    string
	action  action
	objects []*unstructured.Unstructured
	by      time.Duration // of advance
}

// readWorkload returns the files of a folder as steps, in the order of their names.
func readWorkload(folder string) ([]step, error) {
	files, err := os.ReadDir(folder) // sorted
	if err != nil {
		return nil, err
	}
	var steps []step
	for _, file := range files {
		action := actionOf(file.Name())
		if file.IsDir() || action == 0 {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			return nil, err
		}
		s := step{name: file.Name(), action: action}
		if action == advance {
			s.by, err = time.ParseDuration(strings.TrimSpace(string(content)))
		} else {
			s.objects, err = parseObjects(content)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(folder, file.Name()), err)
		}
		steps = append(steps, s)
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("the workload %s has no file that ends in .yaml, .yml, .json or .advance", folder)
	}
	return steps, nil
}

// actionOf returns zero for a file that is no step.
func actionOf(name string) action {
	if strings.HasSuffix(name, ".advance") {
		return advance
	}
	stem, found := "", false
	for _, ext := range []string{".yaml", ".yml", ".json"} {
		if stem, found = strings.CutSuffix(name, ext); found {
			break
		}
	}
	switch {
	case !found:
		return 0
	case strings.HasSuffix(stem, ".patch"):
		return patch
	case strings.HasSuffix(stem, ".delete"):
		return remove
	case strings.HasSuffix(stem, ".wait"):
		return await
	default:
		return apply
	}
}

// parseObjects reads the documents of a file in YAML or JSON.
func parseObjects(content []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var fields map[string]any
		err := documents.Decode(&fields)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(fields) == 0 {
			continue
		}
		o := &unstructured.Unstructured{Object: fields}
		if o.GetAPIVersion() == "" || o.GetKind() == "" || o.GetName() == "" {
			return nil, errors.New("a document lacks apiVersion, kind or metadata.name")
		}
		objects = append(objects, o)
	}
}

// readObjects returns the objects of files, and of the files in folders, in the order of their paths.
func readObjects(paths []string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		err := filepath.WalkDir(path, func(name string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || isKustomization(name) || actionOf(name) == 0 || actionOf(name) == advance {
				return err
			}
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			found, err := parseObjects(content)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			objects = append(objects, found...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return objects, nil
}
