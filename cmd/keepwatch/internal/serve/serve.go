package serve

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	lookback "github.com/keepwatch/keepwatch/cmd/keepwatch/internal/history"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/messages"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/serving"
	"github.com/keepwatch/keepwatch/internal/watchhistory"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

const serveHelp = `Serve the Kubernetes API from one process, with its data in memory or in an embedded etcd.

Without --data-dir all data is in memory, and is gone when the server ends. With --data-dir it is in an embedded
etcd in that folder; --etcd uses one in a temporary folder, and --etcd-servers an etcd of yours.

It is a real API server without a cluster: custom resource definitions with validation, defaulting,
subresources and conversion, server-side apply, watches, discovery and OpenAPI, and the built-in
kinds of the core, apiregistration, apps, autoscaling, batch, certificates, coordination, discovery,
events, flowcontrol, networking, node, policy, rbac, resource, scheduling, storage and
storagemigration groups. Admission and conversion webhooks are called at their URL, or at the
external name of their service. Services get cluster IPs and node ports, at which nothing answers.

Without --simulate, no controllers of workloads run. Nothing schedules or starts pods, creates the
pods of a Deployment, or renews anything; nothing expires except events (--event-ttl). A pod without
a node is gone when it is deleted, one on a node when it is deleted without grace, as a kubelet does
at the end. The contents of deleted namespaces are deleted. Unless --controllers=false, the
dependents of deleted owners are deleted, too, each namespace gets its service account and
kube-root-ca.crt, ResourceQuotas get their status, and approved CertificateSigningRequests for
clients of this server are signed.

With --simulate, workloads run, without containers: pods are scheduled to simulated nodes and become
Running and Ready, Deployments, ReplicaSets, StatefulSets and DaemonSets create and replace them,
and rollouts end. Pods of Jobs end at once, or after the time in their annotation
simulation.keepwatch.io/run-for. There is the node node-1, and each that you create. Delays pass in
real time, which a POST to /keepwatch/simulation/advance?by=90s moves forward.

Service accounts have tokens: kubectl create token. A token ends with its account, or with the pod, Secret or
node that it is bound to.

With --authorization-mode RBAC, roles and bindings decide what users may do, beginning with Kubernetes'
default ones; the token's user may do everything, and impersonate everybody. Without it, every user may
do everything, and kubectl auth can-i answers yes.

Not enforced: admission beyond namespaces, LimitRanges, ResourceQuotas, PriorityClasses, default tolerations,
policies and webhooks. Built-in kinds are checked for their structure,
names and metadata, and for their values only where the documentation says so. Only common defaults are set.

With --history, the server is the past of a cluster: the Kubernetes API of every moment that
'keepwatch sync' has stored, at the path /at/MOMENT, for reading. 'keepwatch history context' adds
moments to its kubeconfig. The page /keepwatch/ has a timeline: 'kubectl proxy' adds the token to
it. Everybody with the token can read everything; with --authorize, the live cluster decides.

A data folder that is in use or damaged is refused, and its files are not changed. Only --verify
checks the values in it.`

func NewCommand() *cobra.Command {
	var options controlplane.Options
	var simulate, endWithParent bool
	var past pastServing
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the Kubernetes API from this process, with its data in memory or in an embedded etcd",
		Long:  serveHelp,
		Example: `  keepwatch serve
  keepwatch serve --data-dir ./data --listen 127.0.0.1:0
  kubectl --kubeconfig ./keepwatch.kubeconfig get namespaces
  keepwatch serve --history sqlite:state.db
  keepwatch serve --history sqlite:state.db --at 10:42 --writable --simulate`,
		Args: exit.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if simulate {
				options.Simulation = controlplane.NewSimulation()
			}
			ctx := cmd.Context()
			if endWithParent {
				var cancel context.CancelFunc
				ctx, cancel = serving.WithParent(ctx)
				defer cancel()
			}
			if past.address != "" {
				if err := past.check(cmd); err != nil {
					return err
				}
				if past.writable {
					return past.fork(ctx, options, cmd.ErrOrStderr())
				}
				return past.serve(ctx, options, cmd.ErrOrStderr())
			}
			if err := checkNoHistory(cmd); err != nil {
				return err
			}
			return serve(ctx, options, cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.DataDir, "data-dir", "",
		"the folder of all data, in an embedded etcd (default: all data is in memory, and gone at the end)")
	flags.BoolVar(&options.TemporaryEtcd, "etcd", false,
		"use an embedded etcd in a temporary folder, removed at the end, instead of memory")
	flags.StringVar(&options.Listen, "listen", "127.0.0.1:6443", "serve HTTPS on this address; port 0 uses a free port")
	flags.StringVar(&options.Kubeconfig, "kubeconfig-out", "./keepwatch.kubeconfig",
		"write a kubeconfig for the server to this file once it is ready")
	flags.StringVar(&options.Token, "token", "",
		"bearer token of the administrator (default the token in the data folder, or a new one)")
	flags.BoolVar(&options.Controllers, "controllers", true,
		"run the controllers that make no pods; false is kube-apiserver without kube-controller-manager")
	flags.BoolVar(&simulate, "simulate", false,
		"let pods run, without containers: schedule them to simulated nodes, report them as ready, and run the controllers of workloads")
	flags.StringVar(&past.address, "history", "",
		"serve the past, read-only, from the database that keepwatch sync writes: "+lookback.Addresses)
	flags.BoolVar(&past.allowGaps, "allow-gaps", false,
		"with --history: answer moments in a gap with what is known of them, and a Warning header")
	flags.StringVar(&past.authorize, "authorize", "",
		"with --history: the kubeconfig of the live cluster, which decides by the rights of now who may read what; clients send tokens of it")
	flags.StringVar(&past.audit, "audit-log", "",
		"with --history: append a line for each request to this file, in the format of kube-apiserver's audit log")
	flags.IntVar(&past.replays, "max-replays", 64, "with --history: open watches; another one is answered with 429")
	flags.BoolVar(&past.writable, "writable", false,
		"with --history: serve a server in memory that begins with the state of --at; what is written to it is gone at the end")
	flags.StringVar(&past.at, "at", "now",
		"with --writable: the moment, such as 2026-11-28T10:42:00Z, 10:42, -15m or revision/4711")
	flags.BoolVar(&endWithParent, "end-with-parent", false,
		"end also when the process that started this one ends, as a test that is killed")
	flags.StringVar((*string)(&options.Authorization), "authorization-mode", string(controlplane.AlwaysAllow),
		"what users may do: \"AlwaysAllow\", or \"RBAC\" for what roles and bindings allow")
	flags.StringSliceVar(&options.Etcd.Servers, "etcd-servers", nil,
		"use this etcd (scheme://host:port, comma separated) instead of the embedded one; read-only if another server has written to it")
	flags.BoolVar(&options.Adopt, "adopt", false,
		"make --etcd-servers this server's own, permanently, although another server has written to it: write without validation, compact, and delete namespaces with only the kinds that this server serves (default: serve it read-only)")
	flags.StringVar(&options.Etcd.CAFile, "etcd-cafile", "", "certificate authority of --etcd-servers")
	flags.StringVar(&options.Etcd.CertFile, "etcd-certfile", "", "client certificate for --etcd-servers")
	flags.StringVar(&options.Etcd.KeyFile, "etcd-keyfile", "", "key of --etcd-certfile")
	flags.BoolVar(&options.Verify, "verify", false,
		"read every object in etcd before the server is ready, and end with exit code 1 if one is damaged")
	flags.StringVar(&options.ServiceClusterIPRange, "service-cluster-ip-range", "",
		"the cluster IPs that Services get: a range, or one of IPv4 and one of IPv6 with a comma between them (default 10.0.0.0/16)")
	flags.StringVar(&options.ServiceNodePortRange, "service-node-port-range", "",
		"the node ports that Services get (default 30000-32767)")
	flags.DurationVar(&options.EventTTL, "event-ttl", 0, "keep Events for this time after their last write (default 1h)")
	flags.Int64Var(&options.QuotaBackendBytes, "quota-backend-bytes", 0,
		"size of the embedded etcd's database at which creates and updates are refused (default 8 GiB)")
	flags.StringVar((*string)(&options.Storage), "storage", string(controlplane.StoreStorage),
		"implementation of reads and watches: \"store\", or \"upstream\" for k8s.io/apiserver's watch cache, which needs an etcd (--etcd without another one)")
	flags.Var((*watchhistory.History)(&options.WatchHistory), "watch-history", watchhistory.Usage)
	exit.NotEmpty(flags, "authorization-mode", "data-dir", "etcd-servers", "kubeconfig-out", "token", "history", "at", "authorize", "audit-log")
	return cmd
}

// startFloor is the size of an unused allocation during the start. It delays the first collection until the heap has
// 384 MB: a start takes 0.17 s of CPU in place of 0.25 s, which counts where each test starts a server. After the
// start it would save 0.4 s of the CPU of the first list of 20,000 pods, once, and cost 60 MB of memory.
const startFloor = 256 << 20

// describeData says where a server has its data.
func describeData(options controlplane.Options, dir string) string {
	switch {
	case dir == "":
		return "data in memory, gone at the end (--data-dir keeps it)"
	case options.DataDir == "":
		return "temporary data in " + dir
	}
	return "data in " + dir
}

// serve runs a server until ctx is done, and reports on stderr when it is ready.
func serve(ctx context.Context, options controlplane.Options, stderr io.Writer) error {
	start := time.Now()
	stderr = &messages.SharedWriter{Out: stderr} // with the server's log
	return RunServer(ctx, options, stderr, func(server *controlplane.Server) {
		fmt.Fprintf(stderr, "keepwatch: ready in %.1fs at %s, kubeconfig %s, %s\n",
			time.Since(start).Seconds(), server.RESTConfig().Host, options.Kubeconfig, describeData(options, server.DataDir()))
		if options.Verify {
			objects, unknown := server.Verified()
			fmt.Fprintf(stderr, "keepwatch: verified %d objects in etcd; %d keys belong to no resource of this server\n",
				objects, unknown)
		}
		if server.ReadOnly() {
			fmt.Fprintf(stderr, "keepwatch: read-only: the etcd at %s holds data that another server has written; see --adopt\n",
				strings.Join(options.Etcd.Servers, ","))
		}
	})
}

// RunServer runs a server until ctx is done, whose log goes to log. It calls ready once, when the server answers all
// requests.
func RunServer(ctx context.Context, options controlplane.Options, log io.Writer,
	ready func(*controlplane.Server)) error {
	serving.SetGCPercent()
	var floor []byte // takes no memory, since it is never accessed; but a memory limit would count it
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		floor = make([]byte, startFloor)
	}
	messages.HideClientDisconnects()
	restore, err := messages.FilterStderr(log)
	if err != nil {
		return err
	}
	defer restore()
	server, err := controlplane.New(options)
	if err != nil {
		return exit.Usage(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	select {
	case <-server.Ready():
		runtime.KeepAlive(floor)
		ready(server)
	case err := <-ended:
		return err
	}
	select {
	case <-server.Warmed():
		debug.FreeOSMemory() // the garbage of reading etcd
		return <-ended
	case err := <-ended:
		return err
	}
}
