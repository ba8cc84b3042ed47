package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/keepwatch/keepwatch/internal/watchhistory"
	"github.com/keepwatch/keepwatch/proxy"
	"github.com/keepwatch/keepwatch/store"
)

const proxyHelp = `Answer the reads of a cluster's API from memory, in front of its API server.

The proxy follows each resource that clients read, by one watch. It answers LIST, GET and WATCH in JSON
with the server's bytes and resource versions, and forwards all other requests. When the server restarts
or compacts its history, the clients' watches stay open.

The API server decides about every read, also while a watch is open: clients send their own bearer tokens.
A client that uses the file --kubeconfig-out acts as the user of --kubeconfig. Client certificates do not
pass through the proxy.

Secrets are forwarded and never stored, unless --cache-secrets is given.`

// proxyOptions are the flags of proxy.
type proxyOptions struct {
	config            *genericclioptions.ConfigFlags
	listen            string
	kubeconfigOut     string
	certFile, keyFile string
	secrets           bool
	history           watchhistory.History
}

// newProxyCommand returns `keepwatch proxy`.
func newProxyCommand() *cobra.Command {
	o := &proxyOptions{config: genericclioptions.NewConfigFlags(true)}
	cmd := &cobra.Command{
		Use:                   "proxy [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "Answer the reads of a cluster's API from memory, in front of its API server",
		Long:                  proxyHelp,
		Example: `  keepwatch proxy --kubeconfig cluster.kubeconfig
  kubectl --kubeconfig keepwatch-proxy.kubeconfig get pods -A --watch`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.ErrOrStderr()) },
	}
	flags := cmd.Flags()
	o.config.AddFlags(flags)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:7443", "serve HTTPS on this address; port 0 uses a free port")
	flags.StringVar(&o.kubeconfigOut, "kubeconfig-out", "./keepwatch-proxy.kubeconfig", "write a kubeconfig for the proxy to this file; who can read it acts as the user of --kubeconfig. Empty writes none")
	flags.StringVar(&o.certFile, "tls-cert-file", "", "serving certificate (default a self-signed one)")
	flags.StringVar(&o.keyFile, "tls-private-key-file", "", "key of --tls-cert-file")
	flags.BoolVar(&o.secrets, "cache-secrets", false, "answer reads of Secrets from memory, too")
	flags.Var(&o.history, "watch-history", watchhistory.Usage)
	return cmd
}

// run serves until ctx is done.
func (o *proxyOptions) run(ctx context.Context, stderr io.Writer) error {
	hideClientDisconnects()
	if (o.certFile == "") != (o.keyFile == "") {
		return &exitError{codeUsage, errors.New("--tls-cert-file and --tls-private-key-file belong together: give both or none")}
	}
	server, err := o.config.ToRESTConfig()
	if err != nil {
		return &exitError{codeUsage, err}
	}
	token := ""
	if o.kubeconfigOut != "" {
		token = rand.Text()
	}
	p, err := proxy.New(proxy.Config{Server: server, OwnToken: token, Secrets: o.secrets, History: store.Options{WindowBytes: o.history.Bytes, WindowAge: o.history.Age}})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	pair, authority, err := o.certificate(listener.Addr())
	if err != nil {
		return err
	}
	address := "https://" + listener.Addr().String()
	files := ""
	if o.kubeconfigOut != "" {
		if err := writeProxyKubeconfig(o.kubeconfigOut, address, authority, token); err != nil {
			return err
		}
		files = ", kubeconfig " + o.kubeconfigOut
	}
	fmt.Fprintf(stderr, "keepwatch: proxy of %s at %s%s\n", server.Host, address, files)
	return serveProxy(ctx, p, tls.NewListener(listener, &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
	}))
}

// endTimeout bounds the wait for the requests that are open at the end.
const endTimeout = 5 * time.Second

// serveProxy serves until ctx is done or the listener fails.
func serveProxy(ctx context.Context, p *proxy.Proxy, listener net.Listener) error {
	running, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { p.Run(running) })
	defer following.Wait()
	defer stop()
	s := &http.Server{
		Handler: p, ReadHeaderTimeout: 32 * time.Second, IdleTimeout: 90 * time.Second, // as k8s.io/apiserver
		ErrorLog: log.New(io.Discard, "", 0), // mistakes of clients
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stop() // watches end
	closing, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if s.Shutdown(closing) != nil {
		_ = s.Close()
	}
	<-ended
	return nil
}

// certificate returns the serving certificate, and the authority that clients need for a self-signed one.
func (o *proxyOptions) certificate(address net.Addr) (tls.Certificate, []byte, error) {
	if o.certFile != "" {
		pair, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
		return pair, nil, err
	}
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	return pair, certificate, err
}

// writeProxyKubeconfig writes a kubeconfig that only this user can read.
func writeProxyKubeconfig(file, address string, authority []byte, token string) error {
	const name = "keepwatch-proxy"
	if existing, err := clientcmd.LoadFromFile(file); err == nil {
		if _, ours := existing.Clusters[name]; !ours && len(existing.Clusters) > 0 {
			return fmt.Errorf("%s exists and is not a kubeconfig of a proxy: it was not changed, give another file with --kubeconfig-out", file)
		}
	}
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: address, CertificateAuthorityData: authority}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	return clientcmd.WriteToFile(*k, file)
}
