package main

import (
	"strings"

	"sigs.k8s.io/yaml"
)

// plugin is the manifest of a plugin of kubectl, of which krew's own documentation has the fields.
type plugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       pluginSpec        `json:"spec"`
}

type pluginSpec struct {
	Version          string           `json:"version"`
	Homepage         string           `json:"homepage"`
	ShortDescription string           `json:"shortDescription"`
	Description      string           `json:"description"`
	Platforms        []pluginPlatform `json:"platforms"`
}

// pluginPlatform is an archive and the program in it, which krew links as kubectl-keepwatch.
type pluginPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string       `json:"uri"`
	SHA256 string       `json:"sha256"`
	Bin    string       `json:"bin"`
	Files  []pluginFile `json:"files"`
}

type pluginFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// krew writes the manifest, which has the plugin's name.
func (r *release) krew() error {
	if len(r.platforms) == 0 {
		return nil
	}
	manifest := plugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2",
		Kind:       "Plugin",
		Metadata:   map[string]string{"name": "keepwatch"},
		Spec: pluginSpec{
			Version:          r.version.String(),
			Homepage:         repository,
			ShortDescription: "Follow changes of any types without losing deletions",
			Description: "Follows objects of any types, and writes their changes as lines (watch), or into SQLite, Postgres,\n" +
				"Kafka, NATS, files and HTTP servers (sync). After an interruption it resumes. If the server's history\n" +
				"is gone, it writes the difference, deletions included. Caches reads of an API server (proxy), and\n" +
				"judges servers (conform), clients (faults) and caches (audit).\n",
		},
	}
	for _, platform := range r.platforms {
		system, arch, _ := strings.Cut(platform, "-")
		p := pluginPlatform{
			URI: r.address(archiveName(platform)), SHA256: r.out.digests[archiveName(platform)], Bin: program(platform),
			Files: []pluginFile{{program(platform), "."}, {"LICENSE", "."}},
		}
		p.Selector.MatchLabels = map[string]string{"os": system, "arch": arch}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, p)
	}
	text, err := yaml.Marshal(manifest)
	if err != nil {
		return err
	}
	return r.out.writeText("keepwatch.yaml", text)
}
