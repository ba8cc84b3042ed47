package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// docs is the page that says how a release is made, and what the terms of its provenance mean.
const docs = repository + "/blob/main/docs/releases.md"

// modules are the modules of all programs, and their sums in go.sum.
type modules map[string]string // "h1:…" by package URL

// read adds the modules of a program. All programs are built by one version of Go.
func (r *release) read(binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	if r.goBuild != "" && r.goBuild != info.GoVersion {
		return fmt.Errorf("%s was built by %s, and others by %s", binary, info.GoVersion, r.goBuild)
	}
	r.goBuild = info.GoVersion
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		if module.Sum != "" { // others are folders of this repository
			r.modules["pkg:golang/"+module.Path+"@"+module.Version] = module.Sum
		}
	}
	return nil
}

// statement is in-toto's Statement v1, with the predicate SLSA Provenance v1.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     struct {
		BuildDefinition struct {
			BuildType            string         `json:"buildType"`
			ExternalParameters   map[string]any `json:"externalParameters"`
			InternalParameters   map[string]any `json:"internalParameters"`
			ResolvedDependencies []resource     `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails struct {
			Builder struct {
				ID string `json:"id"`
			} `json:"builder"`
		} `json:"runDetails"`
	} `json:"predicate"`
}

// resource is in-toto's ResourceDescriptor.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

const provenanceName = "provenance.json"

// provenance writes what the files written so far were built of. It has no time of the build, which would differ.
func (r *release) provenance() error {
	var s statement
	s.Type, s.PredicateType = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
	for _, name := range r.out.names() {
		s.Subject = append(s.Subject, resource{Name: name, Digest: map[string]string{"sha256": r.out.digests[name]}})
	}
	source := "git+" + repository
	build := &s.Predicate.BuildDefinition
	build.BuildType = docs + "#build-type-v1"
	build.ExternalParameters = map[string]any{
		"source": source, "version": r.version, "platforms": list(r.platforms), "architectures": list(r.archs),
		"registry": r.registry, "downloads": r.downloads,
	}
	build.InternalParameters = map[string]any{"go": r.goBuild, "sourceDateEpoch": r.source.date.Unix()}
	build.ResolvedDependencies = []resource{{
		URI: source + "@" + r.source.commit, Digest: map[string]string{"gitCommit": r.source.commit},
	}}
	for _, url := range slices.Sorted(maps.Keys(r.modules)) {
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.modules[url], "h1:"))
		if err != nil {
			return fmt.Errorf("the sum of %s: %w", url, err)
		}
		build.ResolvedDependencies = append(build.ResolvedDependencies, resource{
			URI: url, Digest: map[string]string{"dirHash": hex.EncodeToString(sum)},
		})
	}
	s.Predicate.RunDetails.Builder.ID = r.builder
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	r.provenanceText = append(text, '\n')
	return r.out.writeText(provenanceName, r.provenanceText)
}

// list is an array in JSON, also if it is empty.
func list(all []string) []string { return append([]string{}, all...) }
