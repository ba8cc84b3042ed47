package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/version"
	"github.com/keepwatch/keepwatch/internal/pings"
)

// Connection returns the configuration of the connection to the cluster that the flags, the environment, a kubeconfig
// or a pod name. kubectl's libraries take localhost:8080 where none does; no current cluster serves plain HTTP there,
// so that is an error here. Its clients ping their connections.
func Connection(flags *genericclioptions.ConfigFlags) (*rest.Config, error) {
	config, err := flags.ToRESTConfig()
	switch {
	case errors.Is(err, fs.ErrNotExist) && *flags.KubeConfig != "":
		return nil, fmt.Errorf("--kubeconfig: the file %s does not exist", *flags.KubeConfig)
	case err != nil:
		return nil, err
	case config.Host == clientcmd.ClusterDefaults.Server && *flags.APIServer == "" && os.Getenv("KUBERNETES_MASTER") == "":
		return config, checkNamed(flags)
	}
	return pings.Config(config), nil
}

// checkNamed returns an error unless the kubeconfig names the cluster.
func checkNamed(flags *genericclioptions.ConfigFlags) error {
	loader := flags.ToRawKubeConfigLoader()
	kubeconfig, err := loader.RawConfig()
	if err != nil {
		return err
	}
	name := kubeconfig.CurrentContext
	if *flags.Context != "" {
		name = *flags.Context
	}
	cluster := *flags.ClusterName
	if context, ok := kubeconfig.Contexts[name]; ok && cluster == "" {
		cluster = context.Cluster
	}
	if named, ok := kubeconfig.Clusters[cluster]; ok && named.Server != "" {
		return nil
	}
	switch contexts := slices.Sorted(maps.Keys(kubeconfig.Contexts)); {
	case len(contexts) > 0 && name == "":
		return fmt.Errorf("the kubeconfig has no current context: give --context %s", strings.Join(contexts, ", or "))
	case len(contexts) > 0:
		return fmt.Errorf("the context %s of the kubeconfig names no server", name)
	case *flags.KubeConfig != "":
		return fmt.Errorf("--kubeconfig: the file %s names no cluster", *flags.KubeConfig)
	case os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "":
		return fmt.Errorf("no cluster is configured: KUBECONFIG is %s, which names none or does not exist",
			os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	}
	return errors.New("no cluster is configured: give --kubeconfig, set KUBECONFIG, or write ~/.kube/config " +
		"('keepwatch serve' is a server to try it with)")
}

// ClientName is the User-Agent of all requests.
func ClientName() string { return "keepwatch/" + strings.Trim(version.Current().Version, "()") }
