package controlplane

import (
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/util/compatibility"
	basecompatibility "k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"
)

// servedVersion answers /version with the Kubernetes release of the libraries in this binary. Clients
// choose their requests by it.
type servedVersion struct {
	basecompatibility.EffectiveVersion
}

func kubernetesVersion() basecompatibility.EffectiveVersion {
	return servedVersion{compatibility.DefaultBuildEffectiveVersion()}
}

func (v servedVersion) Info() *version.Info {
	info := v.EffectiveVersion.Info()
	info.GitVersion = "v" + baseversion.DefaultKubeBinaryVersion + ".0+keepwatch"
	info.GitCommit, info.GitTreeState, info.BuildDate = "", "", ""
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
