package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// A release is built with -ldflags "-X main.version=v1.2.3 -X main.commit=…".
var version, commit string

// versions are what a program was built of. The names of fields are those of kubectl version, where it has the same.
type versions struct {
	Version    string `json:"gitVersion"`
	Commit     string `json:"gitCommit,omitempty"`
	TreeState  string `json:"gitTreeState,omitempty"` // clean or dirty
	Kubernetes string `json:"kubernetesLibraries,omitempty"`
	Go         string `json:"goVersion"`
	Platform   string `json:"platform"`
}

func newVersionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit, and the versions of Kubernetes' libraries and Go",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := currentVersion().format(output)
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

// currentVersion returns the version that the linker was given, or else that of the module in the build information.
func currentVersion() versions {
	v := versions{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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
	if commit != "" {
		v.TreeState = treeState(strings.HasSuffix(version, "-dirty")) // as git describe says it
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

// line is what keepwatch --version prints.
func (v versions) line() string {
	return fmt.Sprintf("keepwatch %s (%s, %s)\n", v.Version, v.Go, v.Platform)
}

func (v versions) format(output string) (string, error) {
	switch output {
	case "":
		text := v.line()
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
	return "", &exitError{codeUsage, fmt.Errorf("--output is json or yaml, and not %q", output)}
}
