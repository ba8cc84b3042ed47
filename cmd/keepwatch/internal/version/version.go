// Package version says what this program was built of. It is keepwatch version.
package version

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
)

// A release is built with -ldflags "-X PACKAGE.Version=v1.2.3 -X PACKAGE.Commit=…", with the path of this package.
var Version, Commit string

// Build are what a program was built of. The names of fields are those of kubectl version, where it has the same.
type Build struct {
	Version    string `json:"gitVersion"`
	Commit     string `json:"gitCommit,omitempty"`
	TreeState  string `json:"gitTreeState,omitempty"` // clean or dirty
	Kubernetes string `json:"kubernetesLibraries,omitempty"`
	Go         string `json:"goVersion"`
	Platform   string `json:"platform"`
}

func NewCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit, and the versions of Kubernetes' libraries and Go",
		Args:  exit.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := Current().format(output)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}

// Current returns the version that the linker was given, or else that of the module in the build information.
func Current() Build {
	v := Build{Version: Version, Commit: Commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	if v.Version == "" {
		v.Version = build.Main.Version
	}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	for _, module := range build.Deps {
		if module.Path == "k8s.io/client-go" {
			v.Kubernetes = module.Version
		}
	}
	if Commit != "" {
		v.TreeState = treeState(strings.HasSuffix(Version, "-dirty")) // as git describe says it
		return v
	}
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.Commit = setting.Value
		case "vcs.modified":
			v.TreeState = treeState(setting.Value == "true")
		}
	}
	return v
}

func treeState(modified bool) string {
	if modified {
		return "dirty"
	}
	return "clean"
}

// Line is what keepwatch --version prints.
func (v Build) Line() string {
	return fmt.Sprintf("keepwatch %s (%s, %s)\n", v.Version, v.Go, v.Platform)
}

func (v Build) format(output string) (string, error) {
	switch output {
	case "":
		text := v.Line()
		if v.Commit != "" {
			text += fmt.Sprintf("commit %s, %s\n", v.Commit, v.TreeState)
		}
		if v.Kubernetes != "" {
			text += fmt.Sprintf("Kubernetes libraries %s\n", v.Kubernetes)
		}
		return text, nil
	case "json":
		text, err := json.MarshalIndent(v, "", "  ")
		return string(text) + "\n", err
	case "yaml":
		text, err := yaml.Marshal(v)
		return string(text), err
	}
	return "", exit.Usage(fmt.Errorf("--output is json or yaml, and not %q", output))
}
