package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keepwatch/keepwatch/controlplane"
)

const serveHelp = `Serve the Kubernetes API from one process, over an embedded etcd.

It is a real API server without a cluster behind it: custom resource definitions with validation,
defaulting, subresources and conversion, server-side apply, watches, discovery and OpenAPI, and the
built-in kinds of the core, apps, autoscaling, batch, coordination, discovery, events, networking,
node, policy, rbac, scheduling and storage groups. Admission and conversion webhooks are called if
they are registered by URL: there is no cluster network in which a service could be reached.

No controllers run. Nothing schedules or starts pods, nothing creates the pods of a Deployment,
nothing collects what an owner leaves behind, nothing renews or expires but events (after an hour).
Only the contents of deleted namespaces are deleted. A deleted pod is gone at once.

Not enforced: RBAC (whoever has the token may do everything, impersonated or not, and kubectl auth
can-i says so), quotas, limits, admission beyond namespaces, and what the specs of built-in kinds
mean: their structure, names and metadata are checked, their values are not. Only common defaults
are set. No addresses or ports are allocated to services.

A data folder that is in use, or in which anything is damaged, is refused and left as it is. Values
in it are checked by --verify only.`

func newServeCommand() *cobra.Command {
	var options controlplane.Options
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the Kubernetes API from this process, over an embedded etcd",
		Long:  serveHelp,
		Example: `  keepwatch serve
  keepwatch serve --data-dir ./data --listen 127.0.0.1:0
  kubectl --kubeconfig ./keepwatch.kubeconfig get namespaces`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), options, cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.DataDir, "data-dir", "", "keep all data in this folder (default a temporary one, removed at the end)")
	flags.StringVar(&options.Listen, "listen", "127.0.0.1:6443", "serve HTTPS on this address; port 0 takes a free one")
	flags.StringVar(&options.Kubeconfig, "kubeconfig-out", "./keepwatch.kubeconfig", "write a kubeconfig for the server to this file once it is ready")
	flags.StringVar(&options.Token, "token", "", "bearer token of the one user (default the one in the data folder, or a new one)")
	flags.StringSliceVar(&options.Etcd.Servers, "etcd-servers", nil, "use this etcd (scheme://host:port, comma separated) instead of the embedded one; read-only if another server has written to it")
	flags.BoolVar(&options.Adopt, "adopt", false, "take --etcd-servers that another server has written to for this one's own: write without validation, compact, and delete namespaces knowing only the kinds served here (default: serve them read-only)")
	flags.StringVar(&options.Etcd.CAFile, "etcd-cafile", "", "certificate authority of --etcd-servers")
	flags.StringVar(&options.Etcd.CertFile, "etcd-certfile", "", "client certificate for --etcd-servers")
	flags.StringVar(&options.Etcd.KeyFile, "etcd-keyfile", "", "key of --etcd-certfile")
	flags.BoolVar(&options.Verify, "verify", false, "read every object in etcd first, and end with exit code 1 if one is damaged")
	flags.Int64Var(&options.QuotaBackendBytes, "quota-backend-bytes", 0, "size of the embedded etcd's database at which creates and updates are refused (default 8 GiB)")
	flags.StringVar((*string)(&options.Storage), "storage", string(controlplane.StoreStorage), "what answers reads and watches: \"store\", or \"upstream\" for k8s.io/apiserver's watch cache")
	flags.Var(watchHistory{&options.WatchHistory}, "watch-history", "how much history to keep of each resource, for watches to go on from; behind it they are told the difference (default 64Mi,15m)")
	return cmd
}

const (
	// gcPercent is how much garbage there may be, as a part of what is alive, unless GOGC says
	// otherwise. What is alive are encoded objects, which cost the collector next to nothing to
	// look at: it may look twice as often as by default, and the process is a quarter smaller.
	gcPercent = 50
	// startFloor is what counts as alive while the server starts, whether it is or not. The
	// collector has nothing to do before there are 384 MB then, where it would begin anew at each
	// half more of very little: that was about a tenth of a start's CPU.
	startFloor = 256 << 20
)

// serve runs a server until ctx ends.
func serve(ctx context.Context, options controlplane.Options, stderr io.Writer) error {
	start := time.Now()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	var floor []byte // takes no memory, since nobody touches it; but a limit counts it
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		floor = make([]byte, startFloor)
	}
	hideClientEnds()
	restore, err := filterStderr()
	if err != nil {
		return err
	}
	defer restore()
	server, err := controlplane.New(options)
	if err != nil {
		return &exitError{codeUsage, err}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	select {
	case <-server.Ready():
		kept := "temporary data in "
		if options.DataDir != "" {
			kept = "data in "
		}
		fmt.Fprintf(stderr, "keepwatch: ready in %.1fs at %s, kubeconfig %s, %s%s\n",
			time.Since(start).Seconds(), server.RESTConfig().Host, options.Kubeconfig, kept, server.DataDir())
		if options.Verify {
			objects, unknown := server.Verified()
			fmt.Fprintf(stderr, "keepwatch: verified %d objects in etcd; %d keys belong to no resource here\n", objects, unknown)
		}
		if server.ReadOnly() {
			fmt.Fprintf(stderr, "keepwatch: read-only: the etcd at %s holds data that another server has written; see --adopt\n",
				strings.Join(options.Etcd.Servers, ","))
		}
	case err := <-ended:
		return err
	}
	select {
	case <-server.Warmed():
		runtime.KeepAlive(floor)
		debug.FreeOSMemory() // what reading etcd has left behind
		return <-ended
	case err := <-ended:
		return err
	}
}
