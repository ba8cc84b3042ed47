package apiserver

import (
	"context"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// run runs the API server until ctx is done and its requests have ended.
func run(ctx context.Context, opts options.CompletedOptions, r reads) error {
	klog.InfoS("Starting", "version", version.Get(), "reads", r.by)
	if opts.InformerName == nil {
		name, err := cache.NewInformerName("kube-apiserver")
		if err != nil {
			return err
		}
		opts.InformerName = name
	}
	config, err := app.NewConfig(opts)
	if err != nil {
		return err
	}
	readers, storages := newReaders(encodingsBudget), &storages{}
	if r.by == readsKeepwatch {
		if storages, err = useStorages(config); err != nil {
			return err
		}
		outermost := config.Aggregator.GenericConfig
		outermost.BuildHandlerChainFunc = readers.chain(outermost.BuildHandlerChainFunc)
	}
	completed, err := config.Complete()
	if err != nil {
		return err
	}
	var served []servedResource
	server, err := app.CreateServerChain(completed)
	if err != nil {
		return err
	}
	for next := genericapiserver.DelegationTarget(server.GenericAPIServer); next != nil; next = next.NextDelegate() {
		if one, ok := next.(*genericapiserver.GenericAPIServer); ok {
			served = append(served, servedBy(one)...)
		}
	}
	defaults, err := defaultsOnRead(opts.PrimaryServiceClusterIPRange)
	if err != nil {
		return err
	}
	if err := readers.add(served, storages.opened, defaults); err != nil {
		return err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}
