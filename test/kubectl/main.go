// Command kubectl is the Kubernetes command line, unchanged.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	// The commands are built before their flags are parsed, and building
	// them already logs.
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args))

	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // kubectl's wording and exit codes
	}
}
