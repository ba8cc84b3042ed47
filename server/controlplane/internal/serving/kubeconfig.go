package serving

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keepwatch/keepwatch/internal/privatefile"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
)

// configName is the name of the kubeconfig's only cluster, user and context.
const configName = "keepwatch"

// CheckKubeconfig returns an error if WriteKubeconfig could not write the file, or if the file names
// another cluster: a kubeconfig of other clusters must not be lost.
func CheckKubeconfig(path string) error {
	if err := privatefile.Check(path); err != nil {
		return fmt.Errorf("cannot replace the kubeconfig %s: %w; give another file with --kubeconfig-out", path,
			datadir.Cause(err))
	}
	existing, err := clientcmd.LoadFromFile(path)
	_, unreadable := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return checkWritable(filepath.Dir(path))
	case unreadable:
		return fmt.Errorf("cannot replace the kubeconfig %s: %w; give another file with --kubeconfig-out", path,
			datadir.Cause(err))
	case err != nil || !isOurs(existing):
		return fmt.Errorf(
			"%s exists and isn't a kubeconfig of keepwatch: it was not changed, give another file with --kubeconfig-out", path)
	default:
		return checkWritable(filepath.Dir(path))
	}
}

// isOurs reports whether a kubeconfig names no cluster except a server of this package.
func isOurs(config *clientcmdapi.Config) bool {
	_, named := config.Clusters[configName]
	return len(config.Clusters) == 0 || len(config.Clusters) == 1 && named
}

func checkWritable(dir string) error {
	f, err := os.CreateTemp(dir, ".keepwatch-")
	if err != nil {
		return fmt.Errorf("cannot write a kubeconfig into %s: %w", dir, datadir.Cause(err))
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// WriteKubeconfig writes a file with the address, the certificate authority and the token of client.
func WriteKubeconfig(path string, client *rest.Config) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[configName] = &clientcmdapi.Cluster{Server: client.Host, CertificateAuthorityData: client.CAData}
	config.AuthInfos[configName] = &clientcmdapi.AuthInfo{Token: client.BearerToken}
	config.Contexts[configName] = &clientcmdapi.Context{Cluster: configName, AuthInfo: configName, Namespace: "default"}
	config.CurrentContext = configName
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if err := privatefile.Write(path, content); err != nil {
		return fmt.Errorf("cannot write the kubeconfig %s: %w", path, datadir.Cause(err))
	}
	return nil
}
