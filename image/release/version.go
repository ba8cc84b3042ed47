package main

import (
	"fmt"
	"regexp"
	"strings"
)

// version is the version of a release, with its v.
type version string

var versionForm = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-rc\.[1-9]\d*)?$`)

func parseVersion(text string) (version, error) {
	if !versionForm.MatchString(text) {
		return "", fmt.Errorf("%q is no version of a release: give VERSION=vX.Y.Z or VERSION=vX.Y.Z-rc.N", text)
	}
	return version(text), nil
}

func (v version) String() string { return string(v) }

// number is the version without its v, as charts and formulas have it.
func (v version) number() string { return strings.TrimPrefix(string(v), "v") }

// final is the version that a candidate becomes.
func (v version) final() version {
	final, _, _ := strings.Cut(string(v), "-")
	return version(final)
}

func (v version) isCandidate() bool { return v != v.final() }
