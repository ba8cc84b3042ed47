package history

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keepwatch/keepwatch/internal/privatefile"
)

// nowContext is the name of the context, the cluster and the user that serve --history writes.
const nowContext = "now"

// WriteKubeconfig writes the address, the authority and the token of a history's server. Contexts that
// `keepwatch history context` has added stay, with the new ones. A kubeconfig of other clusters is not changed.
func WriteKubeconfig(file, address string, authority []byte, token string) error {
	if err := privatefile.Check(file); err != nil {
		return fmt.Errorf("--kubeconfig-out: %w", err)
	}
	k, err := clientcmd.LoadFromFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k = clientcmdapi.NewConfig()
	case err != nil || !historiesOnly(k):
		return fmt.Errorf(
			"%s exists and is not a kubeconfig of a history: it was not changed, give another file with --kubeconfig-out", file)
	}
	moments := map[string]string{nowContext: "/at/now"}
	for name, cluster := range k.Clusters {
		moments[name] = momentOf(cluster)
	}
	for name, moment := range moments {
		k.Clusters[name] = &clientcmdapi.Cluster{Server: address + moment, CertificateAuthorityData: authority}
		addTo(k, name)
	}
	k.AuthInfos[nowContext] = &clientcmdapi.AuthInfo{Token: token}
	k.CurrentContext = cmp.Or(k.CurrentContext, nowContext)
	return writeContexts(file, k, "--kubeconfig-out")
}

// addTo adds the context of a cluster to a kubeconfig. One that exists keeps its namespace and user, which
// kubectl config may have set.
func addTo(k *clientcmdapi.Config, name string) {
	if c := k.Contexts[name]; c == nil || c.AuthInfo == "" {
		k.Contexts[name] = &clientcmdapi.Context{AuthInfo: nowContext}
	}
	k.Contexts[name].Cluster = name
}

func writeContexts(file string, k *clientcmdapi.Config, flag string) error {
	content, err := clientcmd.Write(*k)
	if err == nil {
		err = privatefile.Write(file, content)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

// momentOf returns the path of the moment in a cluster's address, "" if it has none.
func momentOf(cluster *clientcmdapi.Cluster) string {
	u, err := url.Parse(cluster.Server)
	if err != nil || !strings.HasPrefix(u.Path, "/at/") {
		return ""
	}
	return u.Path
}

// historiesOnly reports whether all clusters of a kubeconfig are moments.
func historiesOnly(k *clientcmdapi.Config) bool {
	for _, cluster := range k.Clusters {
		if momentOf(cluster) == "" {
			return false
		}
	}
	return true
}
