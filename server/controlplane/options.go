package controlplane

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/services"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/serving"
)

// DefaultEventTTL is the default of [Options].EventTTL, as of kube-apiserver's flag.
const DefaultEventTTL = time.Hour

// Options configures a [Server]. The zero value is a server with its data in memory, on a free port of
// 127.0.0.1.
type Options struct {
	// Listen is the host and port to serve HTTPS on. Port 0 selects a free one. The default is
	// 127.0.0.1:0.
	Listen string
	// DataDir is the folder of everything that outlives a restart: the embedded etcd, the certificate
	// authority and the token. It is created if it does not exist. The default is memory: see Memory.
	DataDir string
	// Memory has the objects and the credentials of a server without DataDir, TemporaryEtcd and Etcd. The caller
	// owns it. One server at a time can use it. The default is a new one, which ends with the server.
	Memory *Memory
	// TemporaryEtcd runs the embedded etcd in a temporary folder, which is removed when the server ends.
	// Nothing in it is flushed to the disk.
	TemporaryEtcd bool
	// Authorization decides what users may do. The default is AlwaysAllow.
	Authorization Authorization
	// Controllers runs those of kube-controller-manager's controllers that make no pods: each namespace gets its service
	// account default and its config map kube-root-ca.crt, the dependents of deleted owners are deleted, the status of
	// ResourceQuotas is computed, and approved CertificateSigningRequests for clients of this server are signed. Without
	// it, only the namespace controller runs, and with RBAC the one that aggregates ClusterRoles. A read-only server runs
	// none.
	Controllers bool
	// Simulation runs workloads without containers: pods are scheduled to simulated nodes, and become ready. It needs
	// Controllers. The caller owns it, and it outlives the server. The default is none. A read-only server runs none.
	Simulation *Simulation
	// Token is the bearer token of the administrator, keepwatch-admin, who is in the group system:masters. The default is
	// the token in DataDir, or else a new random one.
	Token string
	// ClientCAFile has certificate authorities, PEM, whose client certificates authenticate users, besides the
	// server's own authority. The common name is the user, the organizations are the groups.
	ClientCAFile string
	// ServiceClusterIPRange is the range of the cluster IPs that Services get, or one of IPv4 and one of IPv6 with a comma
	// between them, the default family first, as kube-apiserver's flag --service-cluster-ip-range. Nothing answers at
	// these addresses. The default is 10.0.0.0/16.
	ServiceClusterIPRange string
	// ServiceNodePortRange is the range of the node ports that Services get, as kube-apiserver's flag
	// --service-node-port-range. The default is 30000-32767.
	ServiceNodePortRange string
	// EventTTL is the time from the last write of an Event to its deletion, in whole seconds, as kube-apiserver's flag
	// --event-ttl. The default is DefaultEventTTL.
	EventTTL time.Duration
	// ServiceAccounts has the keys of the tokens of service accounts.
	ServiceAccounts ServiceAccounts
	// CertFile and KeyFile, PEM, are the serving certificate. The default is one that the server's own authority
	// issues.
	CertFile, KeyFile string
	// Version is the release of Kubernetes that /version answers: "1.34", or "1.34.2". It changes nothing else.
	// The default is the release of the libraries.
	Version string
	// Middleware returns a handler around the server's own handlers, behind authentication, authorization and the
	// limits of concurrent requests. A request's context has its user and its RequestInfo; the server's own clients
	// are the user system:apiserver. The default is none.
	Middleware func(http.Handler) http.Handler
	// Refused is called when a request is answered with an error before it reaches Middleware, by authentication or
	// authorization for example, and before that answer is sent. The request's context has its RequestInfo, and its user
	// if authorization was asked. Several goroutines call it at a time. The default is none.
	Refused func(r *http.Request, status int)
	// Kubeconfig is the file that is written when the server is ready, with its address, certificate
	// authority and token. Only its owner can read it. If empty, no file is written.
	Kubeconfig string
	// Etcd is an external etcd cluster that replaces the embedded one. If it has keys when a server
	// first connects to it, it belongs to another server: this server only reads it, and answers writes
	// with 405. See Adopt, and [Server.ReadOnly].
	Etcd EtcdCluster
	// QuotaBackendBytes is the size of the embedded etcd's database at which etcd refuses creates and
	// updates, as etcd's flag of this name. The default is 8 GiB.
	QuotaBackendBytes int64
	// Adopt makes an external etcd with all its keys this server's own, permanently. The server then
	// writes to it without validation, compacts etcd's history, and completes the deletion of
	// namespaces; it deletes only objects of the kinds that it serves, and leaves the others behind.
	Adopt bool
	// Verify reads every object in etcd before the server is ready. If one is damaged, Run returns an
	// error.
	Verify bool
	// Storage selects the implementation of reads and watches. The default is StoreStorage.
	Storage Storage
	// WatchHistory bounds the history of each resource. A watch that resumes or reads within this
	// history receives every event; from an older revision, the watch receives the difference. It applies to
	// StoreStorage only. Zero fields are 64 MiB and 15 minutes.
	WatchHistory WatchHistory
}

// ServiceAccounts configures the tokens of service accounts, as kube-apiserver's flags --service-account-… do. The
// zero value is a key in DataDir, or else a new one, and the issuer https://kubernetes.default.svc.cluster.local.
type ServiceAccounts struct {
	// Issuers are the names of the issuer. The first is in new tokens; tokens with any of them are accepted. They are
	// the audiences of the API server, too.
	Issuers []string
	// SigningKeyFile is the private key, PEM, RSA or ECDSA, that signs tokens.
	SigningKeyFile string
	// KeyFiles have public or private keys, PEM, that verify tokens, besides the key that signs.
	KeyFiles []string
}

// Authorization is an authorization mode, by the name that kube-apiserver has for it. The values are closed.
type Authorization string

const (
	// AlwaysAllow allows every request of an authenticated user.
	AlwaysAllow Authorization = "AlwaysAllow"
	// RBAC allows what the roles and bindings in the API allow. The server creates Kubernetes' default roles and
	// bindings at its start, and completes aggregated ClusterRoles. Members of system:masters may do everything.
	RBAC Authorization = "RBAC"
)

// WatchHistory bounds a history by its size and its age.
type WatchHistory struct {
	// Bytes bounds the size of the objects in the history.
	Bytes int64
	// Age bounds the time since the oldest change.
	Age time.Duration
}

// Storage is an implementation of reads and watches. The values are closed.
type Storage string

const (
	// StoreStorage is package storage: a watch cache for each resource, fed from etcd, and package
	// readpath in front of it.
	StoreStorage Storage = "store"
	// UpstreamStorage is k8s.io/apiserver's own watch cache, for comparison.
	UpstreamStorage Storage = "upstream"
)

// defaultQuota is the largest quota that etcd recommends; it is enough for several 100,000 pods.
const defaultQuota = 8 << 30

// EtcdCluster has the addresses and certificates of an external etcd, as in kube-apiserver's --etcd-* flags.
type EtcdCluster struct {
	// Servers are the members' client URLs (scheme://host:port). If empty, the embedded etcd is used.
	Servers []string
	// CAFile, CertFile and KeyFile are PEM files for TLS. CertFile requires KeyFile.
	CAFile, CertFile, KeyFile string
}

// credentials returns those that the options give.
func (o Options) credentials() serving.Given {
	return serving.Given{Token: o.Token, ClientCAFile: o.ClientCAFile, CertFile: o.CertFile, KeyFile: o.KeyFile}
}

// memory reports whether the server has its objects in memory.
func (o Options) memory() bool {
	return len(o.Etcd.Servers) == 0 && o.DataDir == "" && !o.TemporaryEtcd
}

// embedded reports whether the server runs its own etcd.
func (o Options) embedded() bool { return len(o.Etcd.Servers) == 0 && !o.memory() }

// complete checks the options and sets the defaults.
func (o Options) complete() (Options, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	switch o.Storage {
	case "":
		o.Storage = StoreStorage
	case StoreStorage:
	case UpstreamStorage:
		if o.Memory == nil && o.memory() {
			o.TemporaryEtcd = true // it watches etcd itself
		}
	default:
		return o, fmt.Errorf("the storage %q is unknown: give %q or %q", o.Storage, StoreStorage, UpstreamStorage)
	}
	switch o.Authorization {
	case "":
		o.Authorization = AlwaysAllow
	case AlwaysAllow, RBAC:
	default:
		return o, fmt.Errorf("the authorization mode %q is not offered: give %q or %q", o.Authorization, AlwaysAllow, RBAC)
	}
	for _, issuer := range o.ServiceAccounts.Issuers {
		if _, err := url.Parse(issuer); issuer == "" || strings.Contains(issuer, ":") && err != nil {
			return o, fmt.Errorf("the issuer %q of service accounts is invalid: give a URL, like https://kubernetes.default.svc",
				issuer)
		}
	}
	if _, err := services.ParseRanges(o.ServiceClusterIPRange, o.ServiceNodePortRange); err != nil {
		return o, err
	}
	switch {
	case o.EventTTL == 0:
		o.EventTTL = DefaultEventTTL
	case o.EventTTL < time.Second:
		return o, fmt.Errorf("events cannot be kept for %v: give a second at least, like 1h", o.EventTTL)
	}
	if o.WatchHistory.Bytes < 0 || o.WatchHistory.Age < 0 {
		return o, fmt.Errorf("the watch history of %d bytes and %v is invalid: give numbers above zero", o.WatchHistory.Bytes,
			o.WatchHistory.Age)
	}
	if err := serving.CheckToken(o.Token); err != nil {
		return o, err
	}
	switch {
	case o.QuotaBackendBytes < 0:
		return o, fmt.Errorf("the quota of %d bytes for etcd is invalid: give a number above zero", o.QuotaBackendBytes)
	case o.memory() && o.QuotaBackendBytes > 0:
		return o, errors.New(
			"the quota is for the embedded etcd, and this server would have its data in memory: give a data folder, too")
	case o.QuotaBackendBytes > 0 && !o.embedded():
		return o, errors.New("the quota is for the embedded etcd: an external etcd has its own quota")
	case o.QuotaBackendBytes == 0:
		o.QuotaBackendBytes = defaultQuota
	}
	if o.Simulation != nil && !o.Controllers {
		return o, errors.New("a simulation needs the controllers: nothing else deletes the pods of deleted owners")
	}
	if _, _, err := net.SplitHostPort(o.Listen); err != nil {
		return o, fmt.Errorf("cannot listen on %q: give a host and a port, like 127.0.0.1:6443", o.Listen)
	}
	for _, server := range o.Etcd.Servers {
		if !isEtcdURL(server) {
			return o, fmt.Errorf("%q is not an address of an etcd server: give URLs like https://10.0.0.1:2379", server)
		}
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return o, errors.New("the serving certificate requires a key, and the key a certificate: give both files or none")
	}
	if (o.Etcd.CertFile == "") != (o.Etcd.KeyFile == "") {
		return o, errors.New("etcd's client certificate requires a key, and the key a certificate: give both files or none")
	}
	if len(o.Etcd.Servers) == 0 && o.Etcd.CAFile+o.Etcd.CertFile != "" {
		return o, errors.New("etcd's certificate files are for an external etcd: give its servers, too")
	}
	if len(o.Etcd.Servers) == 0 && o.Adopt {
		return o, errors.New("only an external etcd can be adopted: give its servers, too")
	}
	if o.Version != "" {
		if _, err := parseVersion(o.Version); err != nil {
			return o, err
		}
	}
	return o, o.checkDatabase()
}

// checkDatabase returns an error for options that need another database than the one they select.
func (o Options) checkDatabase() error {
	switch {
	case o.Memory != nil && !o.memory():
		return errors.New("a server has its data in memory or in etcd: give one of the two")
	case o.TemporaryEtcd && (o.DataDir != "" || len(o.Etcd.Servers) > 0):
		return errors.New("a temporary etcd has no data folder and no other servers: give one of the three")
	case o.memory() && o.Verify:
		return errors.New("only data in etcd can be verified: give a data folder, or the servers of an etcd")
	}
	return nil
}

func isEtcdURL(server string) bool {
	address, err := url.Parse(server)
	if err != nil {
		return false
	}
	switch address.Scheme {
	case "http", "https":
		return address.Host != ""
	case "unix", "unixs":
		return true
	default:
		return false
	}
}
