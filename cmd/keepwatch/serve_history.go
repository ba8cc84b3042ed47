package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/internal/privatefile"
	"github.com/keepwatch/keepwatch/server/controlplane"
	"github.com/keepwatch/keepwatch/server/past"
	"github.com/keepwatch/keepwatch/server/past/fork"
	"github.com/keepwatch/keepwatch/source/history"
)

// historyServing is serve --history.
type historyServing struct {
	address   string // of the database
	allowGaps bool
	at        string // the moment that a writable server begins with
	writable  bool
	replays   int    // that are open at a time
	authorize string // a kubeconfig of the cluster that decides who may read
	audit     string // a file
}

// checkNoHistory fails for flags that have no effect without --history: who gives one relies on it.
func checkNoHistory(cmd *cobra.Command) error {
	if cmd.Flags().Changed("writable") || cmd.Flags().Changed("at") {
		return &exitError{codeUsage, errors.New("--writable and --at are for --history")}
	}
	for _, name := range []string{"allow-gaps", "authorize", "audit-log", "max-replays"} {
		if cmd.Flags().Changed(name) {
			return &exitError{codeUsage, fmt.Errorf("--%s is for --history", name)}
		}
	}
	return nil
}

// check fails for flags of serve that --history does not have.
func (h *historyServing) check(cmd *cobra.Command) error {
	if h.replays < 1 {
		return &exitError{codeUsage, fmt.Errorf("--max-replays must be at least 1, not %d", h.replays)}
	}
	refused := []string{"data-dir", "etcd", "etcd-servers", "adopt", "verify", "storage"}
	if h.writable {
		for _, name := range append(refused, "authorize", "audit-log", "max-replays") {
			if cmd.Flags().Changed(name) {
				return &exitError{codeUsage, fmt.Errorf("--writable begins with the state of a moment, in memory: remove --%s",
					name)}
			}
		}
		return nil
	}
	if h.authorize != "" && cmd.Flags().Changed("token") {
		return &exitError{codeUsage,
			errors.New("--authorize and --token exclude each other: clients send tokens of the cluster")}
	}
	refused = append(refused, "simulate", "authorization-mode", "event-ttl", "at", "controllers", "watch-history",
		"quota-backend-bytes",
		"service-cluster-ip-range", "service-node-port-range", "etcd-cafile", "etcd-certfile", "etcd-keyfile")
	for _, name := range refused {
		if cmd.Flags().Changed(name) {
			return &exitError{codeUsage, fmt.Errorf("--history serves the past, read-only: remove --%s", name)}
		}
	}
	return nil
}

// fork serves a server in memory that begins with the state of a moment, until ctx is done.
func (h *historyServing) fork(ctx context.Context, options controlplane.Options, stderr io.Writer) error {
	m, err := moment("at", h.at)
	if err != nil {
		return err
	}
	database, err := openHistory(ctx, h.address)
	if err != nil {
		return err
	}
	state, err := fork.At(ctx, history.New(database, history.Options{Known: fork.KnownType}), m, h.allowGaps)
	if err := errors.Join(err, database.Close()); err != nil {
		return err
	}
	defer state.Memory.Close()
	options.Memory = state.Memory
	fmt.Fprintf(stderr, "keepwatch: begins with %s\n", state)
	return serve(ctx, options, stderr)
}

// nowContext is the name of the context, the cluster and the user that serve --history writes.
const nowContext = "now"

// serve serves the history until ctx is done.
func (h *historyServing) serve(ctx context.Context, options controlplane.Options, stderr io.Writer) (err error) {
	hideClientDisconnects()
	database, err := openHistory(ctx, h.address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	token := cmp.Or(options.Token, rand.Text())
	config := past.Config{
		History: history.New(database, history.Options{Known: fork.KnownType}), Token: token, AllowGaps: h.allowGaps,
		MaxReplays: h.replays,
	}
	if h.authorize != "" {
		if config.Cluster, err = clientcmd.BuildConfigFromFlags("", h.authorize); err != nil {
			return fmt.Errorf("--authorize: %w", err)
		}
		config.Cluster.QPS, config.Cluster.UserAgent = -1, clientName() // clients wait for reviews
		token = ""
	}
	if h.audit != "" {
		file, openErr := os.OpenFile(h.audit, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if openErr != nil {
			return fmt.Errorf("--audit-log: %w", openErr)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		config.Audit = file
	}
	server, err := past.New(config)
	if err != nil {
		return err
	}
	listener, err := listen("--listen", options.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	authority, err := localhost.NewAuthority()
	if err != nil {
		return err
	}
	serving, err := (&proxyOptions{}).newServing(listener.Addr(), &proxyCredentials{token, authority}, nil)
	if err != nil {
		return err
	}
	address := "https://" + listener.Addr().String()
	if err := writeHistoryKubeconfig(options.Kubeconfig, address, serving.trusted(), token); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "keepwatch: the history of %s at %s/at/MOMENT, kubeconfig %s\n", databaseName(h.address), address,
		options.Kubeconfig)
	return serveReads(ctx, server, serving, listener, stderr)
}

// databaseName returns the address of a database without what may be a password: the user and the parameters of a URL,
// whose host may be missing, or several.
func databaseName(address string) string {
	scheme, rest, isURL := strings.Cut(address, "://")
	if !isURL {
		return address
	}
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest[strings.LastIndex(rest, "@")+1:]
}

// writeHistoryKubeconfig writes the address, the authority and the token of a history's server. Contexts that
// `keepwatch history context` has added stay, with the new ones. A kubeconfig of other clusters is not changed.
func writeHistoryKubeconfig(file, address string, authority []byte, token string) error {
	k, err := clientcmd.LoadFromFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k = clientcmdapi.NewConfig()
	case err != nil || !historiesOnly(k):
		return fmt.Errorf(
			"%s exists and is not a kubeconfig of a history: it was not changed, give another file with --kubeconfig-out", file)
	}
	moments := map[string]string{nowContext: "/at/now"}
	for name, cluster := range k.Clusters {
		moments[name] = momentOf(cluster)
	}
	for name, moment := range moments {
		k.Clusters[name] = &clientcmdapi.Cluster{Server: address + moment, CertificateAuthorityData: authority}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: nowContext}
	}
	k.AuthInfos[nowContext] = &clientcmdapi.AuthInfo{Token: token}
	k.CurrentContext = cmp.Or(k.CurrentContext, nowContext)
	return writeContexts(file, k, "--kubeconfig-out")
}

func writeContexts(file string, k *clientcmdapi.Config, flag string) error {
	content, err := clientcmd.Write(*k)
	if err == nil {
		err = privatefile.Write(file, content)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

// momentOf returns the path of the moment in a cluster's address, "" if it has none.
func momentOf(cluster *clientcmdapi.Cluster) string {
	u, err := url.Parse(cluster.Server)
	if err != nil || !strings.HasPrefix(u.Path, "/at/") {
		return ""
	}
	return u.Path
}

// historiesOnly reports whether all clusters of a kubeconfig are moments.
func historiesOnly(k *clientcmdapi.Config) bool {
	for _, cluster := range k.Clusters {
		if momentOf(cluster) == "" {
			return false
		}
	}
	return true
}

// newHistoryContextCommand returns `keepwatch history context`.
func newHistoryContextCommand() *cobra.Command {
	var file, name string
	speed := 1.0
	cmd := &cobra.Command{
		Use:                   "context MOMENT",
		DisableFlagsInUseLine: true,
		Short:                 "Add a moment to the kubeconfig of serve --history, as a context",
		Long: `Add a context to the kubeconfig that serve --history has written: kubectl --context reads the cluster as it was at the moment.

The context has the name of the moment. A time of a day, and one before now, is the time that it is when the command runs.`,
		Example: `  keepwatch history context 10:42
  kubectl --kubeconfig keepwatch.kubeconfig --context 10:42 get pods -A`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := history.ParseMoment(args[0], time.Now())
			if err != nil {
				return &exitError{codeUsage, err}
			}
			return addContext(file, cmp.Or(name, args[0]), m, speed, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&file, "kubeconfig", "./keepwatch.kubeconfig", "the kubeconfig that serve --history has written")
	cmd.Flags().StringVar(&name, "name", "", "the name of the context (default: the moment)")
	cmd.Flags().Float64Var(&speed, "speed", speed,
		"how many times faster than it was recorded watches continue from the moment; 0 is as fast as they read")
	return cmd
}

// addContext adds the context of a moment to a kubeconfig.
func addContext(file, name string, m history.Moment, speed float64, out io.Writer) error {
	k, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--kubeconfig: the file %s does not exist: keepwatch serve --history writes it", file)
	}
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	now := k.Clusters[nowContext]
	if now == nil || !historiesOnly(k) {
		return fmt.Errorf("--kubeconfig: %s is not of keepwatch serve --history", file)
	}
	if name == nowContext && !m.IsNow() {
		return &exitError{codeUsage, fmt.Errorf("the context %s is the newest state: give another --name", name)}
	}
	path := "/at/" + m.String()
	if speed != 1 {
		path += fmt.Sprintf("/speed/%v", speed)
	}
	cluster := *now
	cluster.Server = strings.TrimSuffix(cluster.Server, "/at/now") + path
	k.Clusters[name], k.Contexts[name] = &cluster, &clientcmdapi.Context{Cluster: name, AuthInfo: nowContext}
	if err := writeContexts(file, k, "--kubeconfig"); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "context %q is %s: kubectl --kubeconfig %s --context %s get pods -A\n", name, m, file, name)
	if err != nil {
		return writeError(err)
	}
	return nil
}
