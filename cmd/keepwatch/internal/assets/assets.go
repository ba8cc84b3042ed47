package assets

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
)

const assetsHelp = `Make a folder with kube-apiserver, etcd and kubectl, and print its path.

All three are links to this program, which is what the name says when it runs under it. Tests that start
Kubernetes' own programs, with controller-runtime's envtest or with one of its likes, run unchanged with them:

  export KUBEBUILDER_ASSETS=$(keepwatch assets)

kube-apiserver is keepwatch serve, with its data in memory. It accepts all flags of kube-apiserver;
its --help lists those that have a meaning here, and it reports the others on stderr. etcd answers
health checks and stores nothing. If --etcd-servers has another etcd, as with
TEST_ASSET_ETCD=/usr/bin/etcd, kube-apiserver stores its data there. kubectl is the real one. Both
servers end with the process that started them.

What the server does not do is in keepwatch serve --help. A suite that needs it takes --exact:
kube-apiserver is Kubernetes' own then, with all of its validation and admission, as
keepwatch-apiserver, which is looked for beside this program and in PATH; etcd stores the data, and
is etcd.`

// The names under which this binary is another program.
const (
	APIServer = "kube-apiserver"
	Etcd      = "etcd"
	Kubectl   = "kubectl"
)

func NewCommand() *cobra.Command {
	var dir string
	var exact bool
	cmd := &cobra.Command{
		Use:   "assets",
		Short: "Make kube-apiserver, etcd and kubectl of this program, for tests with envtest",
		Long:  assetsHelp,
		Example: `  export KUBEBUILDER_ASSETS=$(keepwatch assets)
  keepwatch assets --dir ./bin/k8s
  keepwatch assets --exact
  keepwatch assets --dir ~/.kubeapitest/k8s/1.37.2-linux-amd64    # for fabric8's kube-api-test`,
		Args: exit.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			made, err := makeAssets(dir, exact)
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), made)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "",
		"the folder, which is made if it doesn't exist (default: one in the user's cache folder for each path of the programs)")
	cmd.Flags().BoolVar(&exact, "exact", false, "link kube-apiserver to keepwatch-apiserver, and let etcd store data")
	return cmd
}

// makeAssets links the names in dir to this program, and kube-apiserver to Kubernetes' own if it is to be exact. It
// returns the folder's whole path. It may be called at the same time by several processes.
func makeAssets(dir string, exact bool) (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", fmt.Errorf("cannot find the path of this program: %w", err)
	}
	targets := map[string]string{APIServer: self, Etcd: self, Kubectl: self}
	programs := []string{self}
	if exact {
		server, err := findExactServer(filepath.Dir(self))
		if err != nil {
			return "", err
		}
		targets[APIServer], programs = server, append(programs, server)
	}
	if dir == "" {
		if dir, err = defaultAssets(programs); err != nil {
			return "", err
		}
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot make the folder of the assets (%w): give another one with --dir", err)
	}
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		if err := link(targets[name], filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// defaultAssets returns the folder for programs: those at different paths may be different versions.
func defaultAssets(programs []string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no cache folder for the assets (%w): give a folder with --dir", err)
	}
	digest := sha256.Sum256([]byte(strings.Join(programs, "\x00")))
	return filepath.Join(cache, "keepwatch", "assets", fmt.Sprintf("%x", digest[:4])), nil
}

// link makes name a link to a program. It replaces another link, and nothing else.
func link(program, name string) error {
	existing, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case existing.Mode().Type() != fs.ModeSymlink:
		return fmt.Errorf("%s exists and isn't a link: it was not changed; remove it, or give another folder with --dir",
			name)
	}
	if current, err := os.Readlink(name); err == nil && current == program {
		return nil
	}
	fresh := name + "." + rand.Text()
	if err := os.Symlink(program, fresh); err != nil {
		return fmt.Errorf("cannot make a link to %s: %w", program, err)
	}
	if err := os.Rename(fresh, name); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return nil
}
