package main

import (
	"bytes"
	"fmt"
	"io"
	"path"

	"sigs.k8s.io/yaml"
)

// chartNames are the folders of deploy/helm.
var chartNames = []string{"keepwatch-proxy", "keepwatch-sync"}

// defaultImage is what a chart's values.yaml names in the sources.
const defaultImage = "repository: localhost/keepwatch\n"

// charts packages the charts as helm package does: Chart.yaml first, and all files below the chart's name.
func (r *release) charts() error {
	for _, name := range chartNames {
		files, err := r.source.files(path.Join("deploy/helm", name))
		if err != nil {
			return err
		}
		packaged := []file{{}}
		for _, f := range files {
			f.name = path.Join(name, f.name)
			switch path.Base(f.name) {
			case "Chart.yaml":
				if f.text, err = r.describe(f.text); err != nil {
					return fmt.Errorf("%s: %w", f.name, err)
				}
				packaged[0] = f
				continue
			case "values.yaml":
				if bytes.Count(f.text, []byte(defaultImage)) != 1 {
					return fmt.Errorf("%s does not have the line %q once", f.name, defaultImage)
				}
				f.text = bytes.Replace(f.text, []byte(defaultImage), []byte("repository: "+r.registry+"/keepwatch\n"), 1)
			}
			packaged = append(packaged, f)
		}
		archive := name + "-" + r.version.number() + ".tgz"
		if err := r.out.write(archive, func(w io.Writer) error {
			return writeTarGz(w, packaged, r.source.date)
		}); err != nil {
			return err
		}
	}
	return nil
}

// describe returns a Chart.yaml with what depends on the version.
func (r *release) describe(text []byte) ([]byte, error) {
	var chart map[string]any
	if err := yaml.UnmarshalStrict(text, &chart); err != nil {
		return nil, err
	}
	annotations, _ := chart["annotations"].(map[string]any)
	if annotations == nil {
		return nil, fmt.Errorf("there are no annotations for Artifact Hub")
	}
	chart["version"], chart["appVersion"] = r.version.number(), r.version.String()
	annotations["artifacthub.io/prerelease"] = fmt.Sprint(r.version.isCandidate())
	image := fmt.Sprintf("%s/keepwatch:%s", r.registry, r.version)
	annotations["artifacthub.io/images"] = fmt.Sprintf("- name: keepwatch\n  image: %s\n", image)
	return yaml.Marshal(chart)
}
