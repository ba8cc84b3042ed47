package kube

import "runtime/debug"

const module = "github.com/keepwatch/keepwatch"

// userAgent returns "keepwatch/" and this module's version in the build, "devel" if the
// build has none.
func userAgent() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "keepwatch/devel"
	}
	return "keepwatch/" + version(info)
}

func version(info *debug.BuildInfo) string {
	found := ""
	if info.Main.Path == module {
		found = info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			found = dep.Version
		}
	}
	if found == "" || found == "(devel)" {
		return "devel"
	}
	return found
}
