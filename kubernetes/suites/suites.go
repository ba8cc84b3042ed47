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

// Servers are the API servers of a test. A test calls the method for the servers that it creates. All methods but
// CreateServerChain panic on errors: a patch has no other place for them.
type Servers struct{ wrapped *apiserver.Wrapped } // nil: with upstream's reads

// Wrap is [apiserver.Wrap] if ReadsEnv says keepwatch, and otherwise leaves config as it is.
func Wrap(config *app.Config, etcd *genericoptions.EtcdOptions) Servers {
	if os.Getenv(ReadsEnv) != "keepwatch" {
		return Servers{}
	}
	wrapped, err := apiserver.Wrap(config, etcd, *apiserver.NewOptions())
	if err != nil {
		panic(err)
	}
	return Servers{wrapped}
}

// CreateServerChain creates all servers, as app.CreateServerChain does.
func (s Servers) CreateServerChain(completed app.CompletedConfig) (*aggregatorapiserver.APIAggregator, error) {
	if s.wrapped == nil {
		return app.CreateServerChain(completed)
	}
	return s.wrapped.CreateServerChain(completed)
}

// AddReaders adds the readers of a server that was created without aggregator and custom resources.
func (s Servers) AddReaders(server genericapiserver.DelegationTarget) {
	if s.wrapped == nil {
		return
	}
	if err := s.wrapped.AddReaders(server); err != nil {
		panic(err)
	}
}

// AddExtensionsReaders adds the readers of a server of CustomResourceDefinitions that was created alone.
func (s Servers) AddExtensionsReaders(server *apiextensionsapiserver.CustomResourceDefinitions) {
	s.AddReaders(server.GenericAPIServer)
	if s.wrapped == nil {
		return
	}
	if err := s.wrapped.FollowDefinitions(server.Informers.Apiextensions().V1().CustomResourceDefinitions()); err != nil {
		panic(err)
	}
}
