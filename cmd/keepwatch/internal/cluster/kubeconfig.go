package cluster

import (
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keepwatch/keepwatch/internal/privatefile"
)

// WriteKubeconfig writes the address, the authority and the token of a client as a kubeconfig that only its owner can
// read. The name is of its cluster, user and context. A kubeconfig of other clusters is not replaced.
func WriteKubeconfig(file, name string, client *rest.Config) error {
	if err := privatefile.Check(file); err != nil {
		return fmt.Errorf("--kubeconfig-out: %w", err)
	}
	existing, err := clientcmd.LoadFromFile(file)
	if !errors.Is(err, fs.ErrNotExist) && (err != nil || !namesOnly(existing, name)) {
		return fmt.Errorf(
			"%s exists and is not a kubeconfig of %s: it was not changed, give another file with --kubeconfig-out", file, name)
	}
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: client.Host, CertificateAuthorityData: client.CAData}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: client.BearerToken}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	content, err := clientcmd.Write(*k)
	if err == nil {
		err = privatefile.Write(file, content)
	}
	if err != nil {
		return fmt.Errorf("--kubeconfig-out: %w", err)
	}
	return nil
}

// namesOnly reports whether a kubeconfig has no cluster but one of this name.
func namesOnly(config *clientcmdapi.Config, name string) bool {
	_, named := config.Clusters[name]
	return len(config.Clusters) == 0 || len(config.Clusters) == 1 && named
}
