package assets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/messages"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/serve"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/serving"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

const apiServerHelp = `Keepwatch's API server in the place of kube-apiserver, for the tests of controllers: see keepwatch assets.

Its data is in memory, unless --etcd-servers has an etcd that stores it; keepwatch's own etcd does not. It ends when
the process that started it ends. What it does not do is in keepwatch serve --help.

Other flags of kube-apiserver are accepted, have no effect, and are reported on stderr. These have one, or a reason
to have none:
`

// acceptedFlags are flags of kube-apiserver that test environments set, and the reasons why they need no effect here.
var acceptedFlags = map[string]string{
	"allow-privileged":          "no effect: every pod may be privileged",
	"disable-admission-plugins": "no effect: the plugins that serve --help names run, always",
}

// apiServer is a server in the place of kube-apiserver, by its flags.
type apiServer struct {
	bindAddress, certDir string
	securePort           uint16
	authorizationModes   []string
	options              controlplane.Options
}

// RunAPIServer serves until ctx is done.
func RunAPIServer(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	start := time.Now()
	var s apiServer
	flags := s.flags()
	printVersion := flags.Bool("version", false, "print the version")
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		_, err := io.WriteString(stdout, apiServerHelp+flags.FlagUsages())
		return err
	case err != nil:
		return exit.Usage(err)
	case flags.NArg() > 0:
		return exit.Usage(fmt.Errorf("%q is not a flag", flags.Arg(0)))
	case *printVersion:
		_, err := fmt.Fprintln(stdout, "Kubernetes "+controlplane.Release())
		return err
	}
	stderr = &messages.SharedWriter{Out: stderr} // with the server's log
	report := func(format string, a ...any) { fmt.Fprintf(stderr, APIServer+" (keepwatch): "+format+"\n", a...) }
	for _, name := range undefined(flags, args) {
		report("--%s has no effect here", name)
	}
	if modes := s.notEnforced(); len(modes) > 0 {
		report("--authorization-mode=%s has no effect here: only RBAC and AlwaysAllow have", strings.Join(modes, ","))
	}
	ctx, cancel := serving.WithParent(ctx)
	defer cancel()
	options, err := s.complete(ctx)
	if ctx.Err() != nil {
		return nil // ended on request, or with the parent
	}
	if err != nil {
		return err
	}
	return serve.RunServer(ctx, options, stderr, func(server *controlplane.Server) {
		report("ready in %.1fs at %s, %s", time.Since(start).Seconds(), server.RESTConfig().Host, whereData(options, server))
	})
}

func (s *apiServer) flags() *pflag.FlagSet {
	flags := pflag.NewFlagSet(APIServer, pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc) // underscores are hyphens
	flags.Usage = func() {}
	flags.StringSliceVar(&s.authorizationModes, "authorization-mode", nil,
		"what users may do: RBAC, or AlwaysAllow, which is the default; other modes have no effect")
	flags.StringVar(&s.bindAddress, "bind-address", "127.0.0.1", "serve HTTPS on this address")
	flags.Uint16Var(&s.securePort, "secure-port", 6443, "serve HTTPS on this port")
	flags.StringVar(&s.certDir, "cert-dir", "",
		"the folder of apiserver.crt and apiserver.key, which are made if they don't exist, unless --tls-cert-file is given")
	flags.StringVar(&s.options.CertFile, "tls-cert-file", "", "the serving certificate")
	flags.StringVar(&s.options.KeyFile, "tls-private-key-file", "", "the key of --tls-cert-file")
	flags.StringVar(&s.options.ClientCAFile, "client-ca-file", "",
		"the certificate authorities of clients: a certificate's common name is the user, its organizations are the groups")
	flags.StringSliceVar(&s.options.Etcd.Servers, "etcd-servers", nil,
		"store the data in this etcd, unless it is keepwatch's")
	flags.StringVar(&s.options.Etcd.CAFile, "etcd-cafile", "", "certificate authority of --etcd-servers")
	flags.StringVar(&s.options.Etcd.CertFile, "etcd-certfile", "", "client certificate for --etcd-servers")
	flags.StringVar(&s.options.Etcd.KeyFile, "etcd-keyfile", "", "key of --etcd-certfile")
	flags.StringVar(&s.options.ServiceClusterIPRange, "service-cluster-ip-range", "",
		"the cluster IPs that Services get, at which nothing answers: a range, or one of IPv4 and one of IPv6 with a comma between them; 10.0.0.0/16 if empty")
	flags.StringVar(&s.options.ServiceNodePortRange, "service-node-port-range", "",
		"the node ports that Services get, at which nothing answers; 30000-32767 if empty")
	flags.DurationVar(&s.options.EventTTL, "event-ttl", 0, "keep Events for this time after their last write (default 1h)")
	flags.StringArrayVar(&s.options.ServiceAccounts.Issuers, "service-account-issuer", nil,
		"the issuer of service accounts' tokens; of several, the first is in new tokens, and all are accepted")
	flags.StringVar(&s.options.ServiceAccounts.SigningKeyFile, "service-account-signing-key-file", "",
		"the private key that signs service accounts' tokens; without it, a new one")
	flags.StringArrayVar(&s.options.ServiceAccounts.KeyFiles, "service-account-key-file", nil,
		"keys that verify service accounts' tokens, besides the one that signs")
	for _, name := range slices.Sorted(maps.Keys(acceptedFlags)) {
		flags.String(name, "", acceptedFlags[name])
	}
	flags.Lookup("allow-privileged").NoOptDefVal = "true"
	return flags
}

// undefined returns the names of flags in args that are not defined, each once.
func undefined(flags *pflag.FlagSet, args []string) []string {
	var names []string
	for _, arg := range args {
		flag, isFlag := strings.CutPrefix(arg, "--")
		name, _, _ := strings.Cut(flag, "=")
		if isFlag && name != "" && flags.Lookup(name) == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// authorization returns the mode that decides: as in kube-apiserver, a request is allowed that one of them allows.
func (s *apiServer) authorization() controlplane.Authorization {
	if slices.Contains(s.authorizationModes, string(controlplane.RBAC)) && !slices.Contains(s.authorizationModes,
		string(controlplane.AlwaysAllow)) {
		return controlplane.RBAC
	}
	return controlplane.AlwaysAllow
}

// notEnforced returns the modes of authorization that have no effect.
func (s *apiServer) notEnforced() []string {
	return slices.DeleteFunc(slices.Clone(s.authorizationModes), func(mode string) bool {
		return mode == string(controlplane.RBAC) || mode == string(controlplane.AlwaysAllow)
	})
}

// complete returns the server's options. It may make the serving certificate, and wait for etcd.
func (s *apiServer) complete(ctx context.Context) (controlplane.Options, error) {
	options := s.options
	options.Authorization = s.authorization()
	options.Listen = net.JoinHostPort(s.bindAddress, strconv.Itoa(int(s.securePort)))
	if options.CertFile == "" && s.certDir != "" {
		options.CertFile, options.KeyFile = filepath.Join(s.certDir, "apiserver.crt"), filepath.Join(s.certDir,
			"apiserver.key")
		if err := makeCertificate(s.bindAddress, options.CertFile, options.KeyFile); err != nil {
			return options, err
		}
	}
	stores, err := storesData(ctx, options.Etcd)
	if !stores {
		options.Etcd = controlplane.EtcdCluster{}
	}
	return options, err
}

// makeCertificate makes a self-signed serving certificate, as kube-apiserver does, unless there is one.
func makeCertificate(host, certFile, keyFile string) error {
	if found, err := certutil.CanReadCertAndKey(certFile, keyFile); found || err != nil {
		return err
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err == nil {
		err = keyutil.WriteKey(keyFile, key)
	}
	if err == nil {
		err = certutil.WriteCert(certFile, cert)
	}
	if err != nil {
		return fmt.Errorf("cannot make a serving certificate: %w", err)
	}
	return nil
}

const (
	// etcdTimeout bounds the time in which an etcd must answer that is started at the same time.
	etcdTimeout = 30 * time.Second
	// etcdInterval is the time between two requests to it.
	etcdInterval = 20 * time.Millisecond
)

// storesData reports whether an etcd stores data: all do except keepwatch's, which marks its answers. It waits until
// the first server answers. An etcd with TLS is never keepwatch's.
func storesData(ctx context.Context, etcd controlplane.EtcdCluster) (bool, error) {
	if len(etcd.Servers) == 0 {
		return false, nil
	}
	server := etcd.Servers[0]
	if !strings.HasPrefix(server, "http://") {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // without a proxy
	for {
		empty, err := isEmpty(ctx, client, strings.TrimSuffix(server, "/")+"/version")
		if err == nil {
			return !empty, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("no etcd answers at %s: %w", server, err)
		case <-time.After(etcdInterval):
		}
	}
}

func isEmpty(ctx context.Context, client *http.Client, url string) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	response, err := client.Do(request)
	if err != nil {
		return false, err
	}
	response.Body.Close()
	return response.Header.Get(emptyHeader) != "", nil
}

// whereData says where the server has its data.
func whereData(options controlplane.Options, server *controlplane.Server) string {
	switch {
	case len(options.Etcd.Servers) == 0:
		return "data in memory"
	case server.ReadOnly():
		return "read-only: the etcd holds data that another server has written"
	}
	return "data in etcd"
}
