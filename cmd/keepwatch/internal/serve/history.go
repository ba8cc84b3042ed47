package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	lookback "github.com/keepwatch/keepwatch/cmd/keepwatch/internal/history"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/messages"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/serving"
	"github.com/keepwatch/keepwatch/internal/pings"
	"github.com/keepwatch/keepwatch/server/controlplane"
	"github.com/keepwatch/keepwatch/server/past"
	"github.com/keepwatch/keepwatch/server/past/fork"
	"github.com/keepwatch/keepwatch/source/history"
)

// pastServing is serve --history.
type pastServing struct {
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
		return exit.Usage(errors.New("--writable and --at are for --history"))
	}
	for _, name := range []string{"allow-gaps", "authorize", "audit-log", "max-replays"} {
		if cmd.Flags().Changed(name) {
			return exit.Usage(fmt.Errorf("--%s is for --history", name))
		}
	}
	return nil
}

// check fails for flags of serve that --history does not have.
func (h *pastServing) check(cmd *cobra.Command) error {
	if h.replays < 1 {
		return exit.Usage(fmt.Errorf("--max-replays must be at least 1, not %d", h.replays))
	}
	refused := []string{"data-dir", "etcd", "etcd-servers", "adopt", "verify", "storage"}
	if h.writable {
		for _, name := range append(refused, "authorize", "audit-log", "max-replays") {
			if cmd.Flags().Changed(name) {
				return exit.Usage(fmt.Errorf("--writable begins with the state of a moment, in memory: remove --%s",
					name))
			}
		}
		return nil
	}
	if h.authorize != "" && cmd.Flags().Changed("token") {
		return exit.Usage(errors.New("--authorize and --token exclude each other: clients send tokens of the cluster"))
	}
	refused = append(refused, "simulate", "authorization-mode", "event-ttl", "at", "controllers", "watch-history",
		"quota-backend-bytes",
		"service-cluster-ip-range", "service-node-port-range", "etcd-cafile", "etcd-certfile", "etcd-keyfile")
	for _, name := range refused {
		if cmd.Flags().Changed(name) {
			return exit.Usage(fmt.Errorf("--history serves the past, read-only: remove --%s", name))
		}
	}
	return nil
}

// fork serves a server in memory that begins with the state of a moment, until ctx is done.
func (h *pastServing) fork(ctx context.Context, options controlplane.Options, stderr io.Writer) error {
	m, err := lookback.Moment("at", h.at)
	if err != nil {
		return err
	}
	database, err := lookback.Open(ctx, h.address)
	if err != nil {
		return err
	}
	state, err := fork.At(ctx, history.New(database, history.Options{Known: fork.KnownType}), m, h.allowGaps,
		options.EventTTL)
	if err := errors.Join(err, database.Close()); err != nil {
		return err
	}
	defer state.Memory.Close()
	options.Memory = state.Memory
	fmt.Fprintf(stderr, "keepwatch: begins with %s\n", state)
	return serve(ctx, options, stderr)
}

// checkReadable reads each table once: a server of a damaged database would begin, and fail each request.
func checkReadable(ctx context.Context, h *history.History) error {
	return h.View(ctx, func(v *history.View) error {
		_, err := v.TypesAt(ctx, history.Moment{Time: time.Now()})
		if errors.As(err, new(*history.Unknown)) { // the first lists are under way
			return nil
		}
		return err
	})
}

// serve serves the history until ctx is done.
func (h *pastServing) serve(ctx context.Context, options controlplane.Options, stderr io.Writer) (err error) {
	messages.HideClientDisconnects()
	database, err := lookback.Open(ctx, h.address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	read := history.New(database, history.Options{Known: fork.KnownType})
	if err := checkReadable(ctx, read); err != nil {
		return err
	}
	own, err := serving.NewCredentials()
	if err != nil {
		return err
	}
	token := cmp.Or(options.Token, own.Token)
	config := past.Config{
		History: read, Token: token, AllowGaps: h.allowGaps,
		MaxReplays: h.replays,
	}
	if h.authorize != "" {
		if config.Cluster, err = clientcmd.BuildConfigFromFlags("", h.authorize); err != nil {
			return fmt.Errorf("--authorize: %w", err)
		}
		config.Cluster = pings.Config(config.Cluster)
		config.Cluster.QPS, config.Cluster.UserAgent = -1, cluster.ClientName() // clients wait for reviews
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
	listener, err := serving.Listen("--listen", options.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	certificate, err := serving.NewCertificate("", "", listener.Addr(), own, nil)
	if err != nil {
		return err
	}
	address := serving.URL(listener)
	if err := lookback.WriteKubeconfig(options.Kubeconfig, address, certificate.Trusted(), token); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "keepwatch: the history of %s at %s/at/MOMENT, kubeconfig %s\n", lookback.Name(h.address), address,
		options.Kubeconfig)
	return serving.Reads(ctx, server, certificate, listener, stderr)
}
