package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/messages"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/serving"
	"github.com/keepwatch/keepwatch/internal/bytesize"
	"github.com/keepwatch/keepwatch/internal/watchhistory"
	"github.com/keepwatch/keepwatch/server/proxy"
	"github.com/keepwatch/keepwatch/server/servemetrics"
	"github.com/keepwatch/keepwatch/store"
)

const help = `Answer the reads of a cluster's API from memory, in front of its API server.

The proxy follows each resource that clients read, by one watch for each encoding. It answers LIST, GET and
WATCH in JSON and protobuf with the server's bytes and resource versions, and forwards all other requests. When
the server restarts or compacts its history, the clients' watches stay open.

The API server decides about every read, also while a watch is open: clients send their own bearer tokens.
A client that uses the file --kubeconfig-out acts as the user of --kubeconfig. Clients with a certificate of the
cluster's authority need --impersonate: the proxy then acts as the user of the certificate, and needs the right
to act as anybody.

Without a kubeconfig, in a pod, the proxy has the identity of its service account; --print-rbac prints the
ClusterRole that it needs. Secrets are forwarded and never stored, unless --cache names them.`

// settings are the flags of proxy.
type settings struct {
	config            *genericclioptions.ConfigFlags
	listen            string
	kubeconfigOut     string
	certFile, keyFile string
	cache, noCache    []string
	drop              []string
	printRBAC         bool
	impersonate       bool
	personal          string
	personalGroups    []string
	history           watchhistory.History
	memory            bytesize.Size
	inFlight          int
	state             string
	metricsAddress    string
	audit             auditFlags
}

// NewCommand returns `keepwatch proxy`.
func NewCommand() *cobra.Command {
	o := &settings{config: genericclioptions.NewConfigFlags(true), audit: newAuditFlags()}
	cmd := &cobra.Command{
		Use:                   "proxy [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "Answer the reads of a cluster's API from memory, in front of its API server",
		Long:                  help,
		Example: `  keepwatch proxy --kubeconfig cluster.kubeconfig
  keepwatch watch pods -A --kubeconfig keepwatch-proxy.kubeconfig

  # The rights of a proxy in a pod
  keepwatch proxy --cache pods,nodes,deployments.apps --print-rbac | kubectl apply -f -
  kubectl create clusterrolebinding keepwatch-proxy --clusterrole keepwatch-proxy --serviceaccount NAMESPACE:NAME`,
		Args: exit.Args(cobra.NoArgs),
	}
	cmd.RunE = func(*cobra.Command, []string) error {
		selection, err := proxy.ParseSelection(o.cache, o.noCache)
		switch {
		case err != nil:
			return exit.Usage(fmt.Errorf("--cache, --no-cache: %w", err))
		case o.checkDrop() != nil:
			return exit.Usage(o.checkDrop())
		case o.checkPersonal() != nil:
			return exit.Usage(o.checkPersonal())
		case o.inFlight < 0:
			return exit.Usage(fmt.Errorf("--max-requests-inflight is 0 for no bound, or more, not %d", o.inFlight))
		case o.audit.check() != nil:
			return exit.Usage(o.audit.check())
		case o.printRBAC:
			return cluster.Leave(cmd.Context(), func() error {
				return o.printRights(selection, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		}
		ctx := cmd.Context()
		err = cluster.LeavePlugin(ctx, o.config, func() error {
			return o.run(ctx, selection, cmd.Flags().Changed("kubeconfig-out"), cmd.ErrOrStderr())
		})
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			return nil // as after an end without a plugin
		}
		return err
	}
	flags := cmd.Flags()
	o.config.AddFlags(flags)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:7443", "serve HTTPS on this address; port 0 uses a free port")
	flags.StringVar(&o.kubeconfigOut, "kubeconfig-out", "./keepwatch-proxy.kubeconfig",
		"write a kubeconfig for the proxy to this file; who can read it acts as the user of --kubeconfig. Empty writes none, as does the default in a pod")
	flags.StringVar(&o.certFile, "tls-cert-file", "",
		"serving certificate, with those of its authorities behind it, read again when the file changes (default one of an authority of the proxy's own, which is in --kubeconfig-out, or printed)")
	flags.StringVar(&o.keyFile, "tls-private-key-file", "", "key of --tls-cert-file")
	flags.StringSliceVar(&o.cache, "cache", nil,
		"answer reads of these resources from memory, as resource[.group]: pods,deployments.apps, and read them at the start; * is all but Secrets, which must be named (default *)")
	flags.StringSliceVar(&o.noCache, "no-cache", nil, "forward reads of these resources, as resource[.group]")
	flags.StringArrayVar(&o.drop, "drop", nil,
		"drop this part of objects from answers from memory: managedFields, for all clients, or managedFields=AGENT, for those whose user agents begin with AGENT. Can be repeated")
	flags.BoolVar(&o.printRBAC, "print-rbac", false,
		"print the ClusterRole that the proxy's identity needs for --cache, --no-cache, --impersonate and --personal, and exit")
	flags.BoolVar(&o.impersonate, "impersonate", false,
		"accept client certificates and front proxies of the cluster, and act as the users that they name; the proxy's identity then needs the right to impersonate everybody")
	flags.StringVar(&o.personal, "personal", "",
		"answer lists and watches over all namespaces that the server refuses to a user from the namespaces in which it allows them; annotate also names these in the metadata of lists in JSON")
	flags.Lookup("personal").NoOptDefVal = "true"
	flags.StringSliceVar(&o.personalGroups, "personal-groups", nil,
		"restrict --personal to the users of these groups (default all users)")
	flags.Var(&o.history, "watch-history", watchhistory.Usage)
	flags.StringVar(&o.state, "state", "",
		"directory for an index of what is cached, without contents and without Secrets, and for the proxy's authority and token: with it clients' watches resume after a restart of the proxy")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "0",
		"serve /metrics on this address, too, as plain HTTP for everybody, for example :8080; 0 for none")
	exit.NotEmpty(flags, "cache", "no-cache", "personal-groups", "state", "tls-cert-file", "tls-private-key-file")
	flags.IntVar(&o.inFlight, "max-requests-inflight", proxy.DefaultMaxRequestsInFlight,
		"seats that the server's priority levels share while memory answers requests, as of kube-apiserver; other requests wait their turn, or are answered 429. 0 for no bound")
	o.audit.addTo(cmd)
	flags.Var(&o.memory, "memory-limit",
		"soft limit of the process's memory, such as 2Gi: when there is no room left, the server answers for whole resources again, the largest idle one first (default none)")
	return cmd
}

// checkDrop returns an error for a value of --drop that is none.
func (o *settings) checkDrop() error {
	for _, value := range o.drop {
		if part, agent, some := strings.Cut(value, "="); part != "managedFields" || some && agent == "" {
			return fmt.Errorf(
				"--drop: only managedFields can be dropped, for all clients, or as managedFields=AGENT for some: not %q", value)
		}
	}
	return nil
}

// checkPersonal returns an error for a value of --personal that is none.
func (o *settings) checkPersonal() error {
	switch o.personal {
	case "", "false":
		if len(o.personalGroups) > 0 {
			return errors.New("--personal-groups restricts --personal: give both")
		}
	case "true", "annotate":
	default:
		return fmt.Errorf("--personal: annotate, or no value: not %q", o.personal)
	}
	return nil
}

// personalViews returns the configuration of personal views, nil if there are none.
func (o *settings) personalViews() *proxy.Personal {
	if o.personal == "" || o.personal == "false" {
		return nil
	}
	return &proxy.Personal{Groups: o.personalGroups, Annotate: o.personal == "annotate"}
}

// requestsInFlight returns the bound of the proxy's configuration.
func (o *settings) requestsInFlight() int {
	if o.inFlight == 0 {
		return -1
	}
	return o.inFlight
}

// droppedFor returns the user agents of --drop.
func (o *settings) droppedFor() (agents []string) {
	for _, value := range o.drop {
		_, agent, _ := strings.Cut(value, "=")
		agents = append(agents, agent)
	}
	return agents
}

// run serves until ctx is done. named is true if the user has named the kubeconfig to write.
func (o *settings) run(ctx context.Context, selection proxy.Selection, named bool, stderr io.Writer) (err error) {
	serving.SetGCPercent()
	messages.HideClientDisconnects()
	if (o.certFile == "") != (o.keyFile == "") {
		return exit.Usage(errors.New("--tls-cert-file and --tls-private-key-file belong together: give both or none"))
	}
	server, err := cluster.Connection(o.config)
	if err != nil {
		return err
	}
	if o.impersonate && server.Impersonate.UserName != "" {
		return exit.Usage(
			errors.New("--impersonate and --as exclude each other: the proxy would act as its clients' users with the rights of its own user, not of the one of --as"))
	}
	if !named && inPod(server) {
		o.kubeconfigOut = "" // clients there have tokens of their own
	}
	if o.memory > 0 {
		debug.SetMemoryLimit(int64(o.memory))
	}
	var state *proxy.State
	if o.state != "" {
		if state, err = proxy.OpenState(o.state); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, state.Close()) }()
	}
	audit, endAudit, err := o.audit.start()
	if err != nil {
		return err
	}
	defer endAudit()
	own, err := serving.LoadCredentials(o.state)
	if err != nil {
		return err
	}
	token := ""
	if o.kubeconfigOut != "" {
		token = own.Token
	}
	registry := metrics.NewKubeRegistry()
	p, err := proxy.New(proxy.Config{
		Registry: registry, Server: server, OwnToken: token, Impersonate: o.impersonate, Cached: selection,
		MemoryLimit: int64(o.memory), MaxRequestsInFlight: o.requestsInFlight(), State: state,
		DropManagedFields: o.droppedFor(), Audit: audit,
		History: store.Options{WindowBytes: o.history.Bytes, WindowAge: o.history.Age}, Personal: o.personalViews(),
	})
	if err != nil {
		return err
	}
	stopMetrics, err := serving.ServeMetrics(o.metricsAddress, metricsOnly(registry))
	if err != nil {
		return err
	}
	defer stopMetrics()
	listener, err := serving.Listen("--listen", o.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	if isAt(server.Host, listener.Addr()) {
		return exit.Usage(fmt.Errorf("--kubeconfig (or KUBECONFIG) names the server %s, which is the address of this proxy: "+
			"give the cluster's own file, not one that a proxy has written", server.Host))
	}
	certificate, err := serving.NewCertificate(o.certFile, o.keyFile, listener.Addr(), own, p.ClientAuthorities())
	if err != nil {
		return err
	}
	address := serving.URL(listener)
	files := ""
	if o.kubeconfigOut != "" {
		write := func() error {
			return cluster.WriteKubeconfig(o.kubeconfigOut, "keepwatch-proxy", &rest.Config{Host: address,
				TLSClientConfig: rest.TLSClientConfig{CAData: certificate.Trusted()}, BearerToken: token})
		}
		if err := write(); err != nil {
			return err
		}
		certificate.OnChange(func() {
			if err := write(); err != nil {
				fmt.Fprintf(stderr, "keepwatch: the kubeconfig has not the authority of the new certificate: %v\n", err)
			}
		})
		files = ", kubeconfig " + o.kubeconfigOut
	}
	fmt.Fprintf(stderr, "keepwatch: proxy of %s at %s%s\n", server.Host, address, files)
	if o.kubeconfigOut == "" && o.certFile == "" { // clients have it nowhere else
		fmt.Fprintf(stderr, "keepwatch: clients trust the certificate by this authority\n%s", certificate.Authority)
	}
	return serving.Reads(ctx, p, certificate, listener, stderr)
}

// isAt reports whether a server has the address of a listener: a proxy in front of itself sends each request round and
// round.
func isAt(server string, listener net.Addr) bool {
	location, _, err := rest.DefaultServerUrlFor(&rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{
		Insecure: true}}) // an address without a scheme means HTTPS
	at, ok := listener.(*net.TCPAddr)
	if err != nil || !ok || cmp.Or(location.Port(), "443") != strconv.Itoa(at.Port) {
		return false
	}
	host := net.ParseIP(location.Hostname())
	local := location.Hostname() == "localhost" || host.IsLoopback()
	return host.Equal(at.IP) || local && (at.IP.IsLoopback() || at.IP.IsUnspecified())
}

// metricsOnly serves the metrics to everybody, and lets nobody reset them.
func metricsOnly(registry metrics.KubeRegistry) http.Handler {
	all := mux.NewPathRecorderMux("keepwatch-proxy-metrics")
	servemetrics.Install(all, registry)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodGet && q.Method != http.MethodHead {
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		all.ServeHTTP(w, q)
	})
}

// inPod reports whether the proxy has the identity of a pod's service account.
func inPod(server *rest.Config) bool {
	return server.BearerTokenFile == "/var/run/secrets/kubernetes.io/serviceaccount/token" // as rest.InClusterConfig
}
