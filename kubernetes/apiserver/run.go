package apiserver

import (
	"context"
	"os"

	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// run runs the API server until ctx is done and its requests have ended.
func run(ctx context.Context, opts options.CompletedOptions, o Options) error {
	klog.Infof("Version: %+v", version.Get()) // kube-apiserver's first lines
	klog.InfoS("Golang settings", "GOGC", os.Getenv("GOGC"), "GOMAXPROCS", os.Getenv("GOMAXPROCS"), "GOTRACEBACK",
		os.Getenv("GOTRACEBACK"))
	klog.InfoS("Starting Keepwatch", "reads", o.Reads)
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
	server, err := newServer(config, o)
	if err != nil {
		return err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}
