package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// What waits for a credential plugin is left 10 s after the end of its context, and what has none is waited for.
func TestLeavePlugin(t *testing.T) {
	const user = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: plugin, interactiveMode: Never}}"
	file := func(user string) *genericclioptions.ConfigFlags {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
			"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: " + user + "}]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		flags := genericclioptions.NewConfigFlags(true)
		flags.KubeConfig = &path
		return flags
	}
	asked, own := errors.New("asked to end"), errors.New("its own end")
	for name, c := range map[string]struct {
		user string
		ends time.Duration // after the end of the context; until the end of the test if it is 0
		want error
		left time.Duration
	}{
		"a plugin that hangs":      {user, 0, asked, pluginGrace},
		"a plugin that ends late":  {user, 9 * time.Second, own, 9 * time.Second},
		"a plugin that ends first": {user, -time.Second, own, -time.Second},
		"no plugin":                {"{token: t}", time.Minute, own, time.Minute},
	} {
		flags := file(c.user)
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			released := make(chan struct{})
			defer close(released)
			time.AfterFunc(time.Minute, func() { cancel(asked) })
			begin := time.Now()
			err := LeavePlugin(ctx, flags, func() error {
				if c.ends == 0 {
					<-released
					return own
				}
				time.Sleep(time.Minute + c.ends)
				return own
			})
			if after := time.Since(begin) - time.Minute; !errors.Is(err, c.want) || after != c.left {
				t.Errorf("%s: %v after %v", name, err, after)
			}
			cancel(nil)
		})
	}
}
