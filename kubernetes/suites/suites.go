// Package suites lets Kubernetes' own tests start their API servers with Keepwatch's reads. The
// runner of test/suites patches calls of it into the functions that start a server in those tests.
package suites

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"github.com/keepwatch/keepwatch/kubernetes/apiserver"
)

// ReadsEnv is the environment variable with the value of --reads.
const ReadsEnv = "KEEPWATCH_READS"

// Wrap is [apiserver.Wrap] if ReadsEnv says keepwatch, and otherwise leaves config as it is. The test
// calls created with the outermost server. Both panic on errors: a patch has no other place for them.
func Wrap(config *app.Config, etcd *genericoptions.EtcdOptions) (created func(outermost genericapiserver.DelegationTarget)) {
	if os.Getenv(ReadsEnv) != "keepwatch" {
		return func(genericapiserver.DelegationTarget) {}
	}
	wrapped, err := apiserver.Wrap(config, etcd, *apiserver.NewOptions())
	if err != nil {
		panic(err)
	}
	return func(outermost genericapiserver.DelegationTarget) {
		if err := wrapped.AddReaders(outermost); err != nil {
			panic(err)
		}
	}
}
