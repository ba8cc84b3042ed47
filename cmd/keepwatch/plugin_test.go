//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// A command ends although the credential plugin that it has started does not: the plugin waits for a browser, for
// example.
func TestEndBesideAPlugin(t *testing.T) {
	parallel(t)
	if testing.Short() {
		t.Skip("each command ends after 10 s; TestLeavePlugin has the time")
	}
	for command, want := range map[string]int{
		"watch pods -A": 0, "watch *.example.com -A --state state": 0,
		"sync pods -A --to sqlite:state.db":                             0,
		"sync pods -A --to sqlite:state.db --leader-elect default/sync": 0,
		"proxy --listen 127.0.0.1:0":                                    0,
		"proxy --print-rbac":                                            1,
		"audit configmaps -A --against kubeconfig":                      130,
		"top":     130,
		"conform": 130,
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := func(name string) string { return filepath.Join(dir, name) }
			script := fmt.Sprintf("#!/bin/sh\nexec >&- 2>&-\n>%s\nwhile [ -e %s ]; do sleep 0.1; done\n", path("asked"),
				path("hangs"))
			config := "apiVersion: v1\nkind: Config\ncurrent-context: c\n" +
				"contexts: [{name: c, context: {cluster: c, user: u}}]\n" +
				"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true}}]\n" +
				"users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: " + path("plugin") +
				", interactiveMode: Never}}}]\n"
			for name, text := range map[string]string{"hangs": "", "plugin": script, "kubeconfig": config} {
				if err := os.WriteFile(path(name), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			defer os.Remove(path("hangs")) // before the folder, in which the plugin looks
			p := newProcess(t, append([]string{self(t)}, strings.Fields(command)...))
			p.Dir = dir
			p.Env = append(p.Env, "KUBECONFIG="+path("kubeconfig"))
			p.start(t)
			await.NoError(t, "the plugin is asked", func() error {
				_, err := os.Stat(path("asked"))
				if errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("%w; %s", err, p.stderr)
				}
				return err
			})
			p.Process.Signal(syscall.SIGTERM)
			if code := p.exit(t); code != want {
				t.Errorf("exit code %d: %s", code, p.stderr)
			}
		})
	}
}
