package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// connection returns the configuration of the connection to the cluster that the flags, the environment, a kubeconfig
// or a pod name. kubectl's libraries take localhost:8080 where none does; no current cluster serves plain HTTP there,
// so that is an error here.
func connection(flags *genericclioptions.ConfigFlags) (*rest.Config, error) {
	config, err := flags.ToRESTConfig()
	switch {
	case errors.Is(err, fs.ErrNotExist) && *flags.KubeConfig != "":
		return nil, fmt.Errorf("--kubeconfig: the file %s does not exist", *flags.KubeConfig)
	case err != nil:
		return nil, err
	case config.Host == clientcmd.ClusterDefaults.Server && *flags.APIServer == "" && os.Getenv("KUBERNETES_MASTER") == "":
		return config, checkNamed(flags)
	}
	return config, nil
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

// listen listens on the address of a flag. Its errors say what to do.
func listen(flag, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, listenError(flag, address, err)
	}
	return listener, nil
}

// listenError returns the error of listening on the address of a flag, with what to do.
func listenError(flag, address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another process listens on %s: give another address with %s", address, flag)
	case errors.As(err, new(*net.AddrError)), errors.As(err, new(*net.DNSError)):
		return &exitError{codeUsage, fmt.Errorf("%s: give a host and a port, like 127.0.0.1:8443, not %q", flag, address)}
	}
	return fmt.Errorf("%s: %w", flag, err)
}
