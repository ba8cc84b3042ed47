package assets

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	etcdversion "go.etcd.io/etcd/api/v3/version"
	etcdflags "go.etcd.io/etcd/pkg/v3/flags"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/serving"
)

const etcdHelp = `Keepwatch in the place of etcd, for the tests of controllers: see keepwatch assets.

It listens on --listen-client-urls, answers /health, /livez, /readyz and /version as etcd does, and stores nothing:
kube-apiserver beside it has its data in memory. A client that asks for keys is answered Unimplemented. It ends when
the process that started it ends.

All other flags of etcd are accepted, and change nothing:
`

const (
	// emptyHeader marks the answers of an etcd that stores nothing.
	emptyHeader = "Keepwatch-Empty"
	// emptyMessage answers the clients of such an etcd.
	emptyMessage = "this etcd is keepwatch's and stores nothing: the API server beside it has its data in memory; set TEST_ASSET_ETCD to the path of a real etcd to store it there"
	// headerTimeout bounds the time in which a client sends the header of a request.
	headerTimeout = 10 * time.Second
)

// RunEtcd answers as an etcd without keys until ctx is done.
func RunEtcd(ctx context.Context, args []string, stdout, _ io.Writer) error {
	flags := etcdFlags()
	printVersion := flags.Bool("version", false, "print the version")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return printEtcdHelp(stdout, flags)
	case err != nil:
		return exit.Usage(err)
	case flags.NArg() > 0:
		return exit.Usage(fmt.Errorf("%q is not a flag", flags.Arg(0)))
	case *printVersion:
		_, err := fmt.Fprintf(stdout, "etcd Version: %s\n", etcdversion.Version)
		return err
	}
	ctx, cancel := serving.WithParent(ctx)
	defer cancel()
	return serveEmpty(ctx, etcdflags.UniqueURLsFromFlag(flags, "listen-client-urls"))
}

// etcdFlags returns etcd's flags.
func etcdFlags() *flag.FlagSet {
	flags := flag.NewFlagSet(Etcd, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	embed.NewConfig().AddFlags(flags)
	for _, name := range []string{"config-file", "discovery-fallback", "initial-cluster-state", "v2-deprecation"} {
		flags.String(name, "", "of the command etcd") // these are not of package embed
	}
	return flags
}

// printEtcdHelp lists the flags with two hyphens, which envtest looks for.
func printEtcdHelp(w io.Writer, flags *flag.FlagSet) error {
	var text strings.Builder
	text.WriteString(etcdHelp)
	flags.VisitAll(func(f *flag.Flag) { fmt.Fprintf(&text, "  --%s\n", f.Name) })
	_, err := io.WriteString(w, text.String())
	return err
}

// serveEmpty serves at URLs until ctx is done.
func serveEmpty(ctx context.Context, urls []url.URL) error {
	server := &http.Server{Handler: emptyEtcd(), ReadHeaderTimeout: headerTimeout, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // gRPC
	defer server.Close()
	ended := make(chan error, len(urls))
	for _, u := range urls {
		if u.Scheme != "http" {
			return exit.Usage(
				fmt.Errorf("cannot listen on %s: an etcd that stores nothing has no TLS; give an http URL, or set TEST_ASSET_ETCD to a real etcd", u.String()))
		}
		listener, err := net.Listen("tcp", u.Host)
		if err != nil {
			return fmt.Errorf("cannot listen on %s: %w", u.String(), err)
		}
		go func() { ended <- server.Serve(listener) }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// emptyEtcd answers health checks, and refuses everything else.
func emptyEtcd() http.Handler {
	answers := http.NewServeMux()
	for _, check := range []string{"/livez", "/readyz"} {
		answers.HandleFunc(check, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	}
	answers.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"health":"true","reason":""}`)
	})
	answers.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(etcdversion.Versions{Server: etcdversion.Version, Cluster: etcdversion.Version,
			Storage: "none"})
	})
	answers.HandleFunc("/", refuseEtcd)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(emptyHeader, "true")
		answers.ServeHTTP(w, r)
	})
}

// refuseEtcd answers a call of gRPC with the code Unimplemented, and other requests with 501.
func refuseEtcd(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		http.Error(w, emptyMessage, http.StatusNotImplemented)
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", "12")
	w.Header().Set("Grpc-Message", emptyMessage)
}
