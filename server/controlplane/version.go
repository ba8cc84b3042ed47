package controlplane

import (
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/util/compatibility"
	basecompatibility "k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"
)

// servedVersion answers /version with the Kubernetes release of the libraries in this binary, or with Options.Version.
// Clients choose their requests by it.
type servedVersion struct {
	basecompatibility.EffectiveVersion
	given string
}

func kubernetesVersion(given string) basecompatibility.EffectiveVersion {
	return servedVersion{compatibility.DefaultBuildEffectiveVersion(), given}
}

// Release returns the release of Kubernetes that /version answers without Options.Version: that of the libraries in
// this binary, such as v1.37.2+keepwatch.
func Release() string { return kubernetesVersion("").Info().GitVersion }

// releases is the form of Options.Version.
var releases = regexp.MustCompile(`^v?(1)\.(\d+)(?:\.(\d+))?$`)

// parseVersion returns the major, minor and patch numbers of a release.
func parseVersion(release string) ([3]string, error) {
	match := releases.FindStringSubmatch(release)
	if match == nil {
		return [3]string{}, fmt.Errorf("the version %q is not a release of Kubernetes: give one like 1.34 or 1.34.2", release)
	}
	if match[3] == "" {
		match[3] = "0"
	}
	return [3]string(match[1:]), nil
}

func (v servedVersion) Info() *version.Info {
	info := v.EffectiveVersion.Info()
	info.GitCommit, info.GitTreeState, info.BuildDate = "", "", ""
	if numbers, err := parseVersion(v.given); err == nil {
		info.Major, info.Minor = numbers[0], numbers[1]
		info.GitVersion = "v" + strings.Join(numbers[:], ".") + "+keepwatch"
		return info
	}
	info.GitVersion = "v" + baseversion.DefaultKubeBinaryVersion + ".0+keepwatch"
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	for _, module := range build.Deps {
		// k8s.io/apiserver v0.X.Y is released as a part of Kubernetes v1.X.Y.
		if release, isLibrary := strings.CutPrefix(module.Version, "v0."); isLibrary && module.Path == "k8s.io/apiserver" {
			info.GitVersion = "v1." + release + "+keepwatch"
		}
	}
	return info
}
