package follow

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// all returns the sinks.
func (s *syncSettings) all() []*sinkSettings {
	if len(s.Sinks) == 0 {
		return []*sinkSettings{&s.sinkSettings}
	}
	var all []*sinkSettings
	for i := range s.Sinks {
		all = append(all, &s.Sinks[i])
	}
	return all
}

// checkSinks checks the settings of the sinks, as far as that is possible without connecting to them, and names each
// sink that has no name by its scheme.
func (s *syncSettings) checkSinks() error {
	if len(s.Sinks) == 0 {
		return s.sinkSettings.complete()
	}
	if s.To != "" || s.Name != "" || s.given() != "" {
		return errors.New("the file has sinks: each of them has its own name, to and further settings, and the file has none")
	}
	for i := range s.Sinks {
		sink := &s.Sinks[i]
		if sink.To == "" {
			return fmt.Errorf("sinks[%d]: to is missing: %s", i, addresses)
		}
		if err := sink.complete(); err != nil {
			return fmt.Errorf("sinks[%d]: %w", i, err)
		}
		for j := range s.Sinks[:i] {
			if clash := sink.clash(&s.Sinks[j]); clash != "" {
				return fmt.Errorf("sinks[%d]: sinks[%d] has %s", i, j, clash)
			}
		}
	}
	return nil
}

// complete checks the settings of a sink, and names it.
func (s *sinkSettings) complete() error {
	if _, err := s.open(false, sinkCallbacks{}); err != nil {
		return err
	}
	if s.Name == "" {
		s.Name, _, _ = strings.Cut(s.To, ":")
	}
	if problems := validation.IsDNS1123Label(s.Name); len(problems) > 0 {
		return fmt.Errorf("name %q: %s", s.Name, problems[0])
	}
	return nil
}

// clash says what two sinks have in common that each needs for itself, or returns "". The addresses may have passwords.
func (s *sinkSettings) clash(other *sinkSettings) string {
	switch {
	case s.Name == other.Name:
		return "the name " + s.Name + ", too: give one of them another name"
	case place(s.To) == place(other.To):
		return "the same to"
	case s.State != "" && other.State != "" && filepath.Clean(s.State) == filepath.Clean(other.State):
		return "the state directory " + s.State + ", too: give each sink one of its own"
	}
	return ""
}

// place returns an address, that of a file in one spelling.
func place(to string) string {
	scheme, path, _ := strings.Cut(to, ":")
	if scheme == "sqlite" || scheme == "files" {
		return scheme + ":" + filepath.Clean(path)
	}
	return to
}
