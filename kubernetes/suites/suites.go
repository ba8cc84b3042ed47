// Package suites lets Kubernetes' own tests start their API servers with Keepwatch's reads. The
// runner of test/suites patches calls of it into the functions that start a server in those tests.
package suites

import (
	"os"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"github.com/keepwatch/keepwatch/kubernetes/apiserver"
)

// ReadsEnv is the environment variable with the value of --reads.
const ReadsEnv = "KEEPWATCH_READS"

// Config is a config of the API servers of a test. Of its methods, a test calls the one for the servers that it creates. All but
// CreateServerChain panic on errors: a patch has no other place for them.
type Config struct{ wrapped *apiserver.Wrapped } // nil: with upstream's reads

// Wrap is [apiserver.Wrap] if ReadsEnv says keepwatch, and otherwise leaves config as it is.
func Wrap(config *app.Config, etcd *genericoptions.EtcdOptions) Config {
	if os.Getenv(ReadsEnv) != "keepwatch" {
		return Config{}
	}
	wrapped, err := apiserver.Wrap(config, etcd, *apiserver.NewOptions())
	if err != nil {
		panic(err)
	}
	return Config{wrapped}
}

// CreateServerChain creates all servers, as app.CreateServerChain does.
func (c Config) CreateServerChain(completed app.CompletedConfig) (*aggregatorapiserver.APIAggregator, error) {
	if c.wrapped == nil {
		return app.CreateServerChain(completed)
	}
	return c.wrapped.CreateServerChain(completed)
}

// Created adds the readers of a server without others, which has been created.
func (c Config) Created(server genericapiserver.DelegationTarget) {
	if c.wrapped == nil {
		return
	}
	if err := c.wrapped.AddReaders(server); err != nil {
		panic(err)
	}
}

// CreatedExtensions adds the readers of the server of CustomResourceDefinitions, which has been created without others.
func (c Config) CreatedExtensions(server *apiextensionsapiserver.CustomResourceDefinitions) {
	c.Created(server.GenericAPIServer)
	if c.wrapped == nil {
		return
	}
	if err := c.wrapped.FollowDefinitions(server.Informers.Apiextensions().V1().CustomResourceDefinitions()); err != nil {
		panic(err)
	}
}
