package assets

import (
	"os"
	"runtime/debug"
	"strings"
	_ "unsafe" // go:linkname

	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	baseversion "k8s.io/component-base/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// RunKubectl runs kubectl with the process's arguments, as its own main function does. It exits on an error.
func RunKubectl() {
	stampKubectl()
	// Building the commands logs, before their flags are parsed.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

// The linker sets these variables in Kubernetes' own releases (-X). The go command has no way to give such a flag to
// a program that is installed by its path.
//
//go:linkname gitVersion k8s.io/component-base/version.gitVersion
//go:linkname gitMajor k8s.io/component-base/version.gitMajor
//go:linkname gitMinor k8s.io/component-base/version.gitMinor
var gitVersion, gitMajor, gitMinor string

// stampKubectl makes kubectl say the release of Kubernetes that its module belongs to: v0.X.Y is a part of v1.X.Y.
func stampKubectl() {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	for _, module := range build.Deps {
		if release, isTagged := strings.CutPrefix(module.Version, "v0."); isTagged && module.Path == "k8s.io/kubectl" {
			gitVersion, gitMajor = "v1."+release, "1"
			gitMinor, _, _ = strings.Cut(release, ".")
			_ = baseversion.SetDynamicVersion(gitVersion) // which is the default now, and valid
		}
	}
}
