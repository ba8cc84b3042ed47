package controlplane

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/keepwatch/keepwatch/controlplane/internal/serving"
)

// Options configures a [Server]. The zero value is a server with temporary data on a free port of
// 127.0.0.1.
type Options struct {
	// Listen is the host and port to serve HTTPS on. Port 0 selects a free one. The default is
	// 127.0.0.1:0.
	Listen string
	// DataDir is the folder of everything that outlives a restart: the embedded etcd, the certificate
	// authority and the token. It is created if it does not exist. The default is a temporary folder,
	// which is removed when the server ends. The temporary one is faster, since nothing in it is
	// flushed to the disk.
	DataDir string
	// Token is the bearer token of the only user, keepwatch-admin. The default is the token in
	// DataDir, or else a new random one.
	Token string
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

// embedded reports whether the server runs its own etcd.
func (o Options) embedded() bool { return len(o.Etcd.Servers) == 0 }

// complete checks the options and sets the defaults.
func (o Options) complete() (Options, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	switch o.Storage {
	case "":
		o.Storage = StoreStorage
	case StoreStorage, UpstreamStorage:
	default:
		return o, fmt.Errorf("the storage %q is unknown: give %q or %q", o.Storage, StoreStorage, UpstreamStorage)
	}
	if o.WatchHistory.Bytes < 0 || o.WatchHistory.Age < 0 {
		return o, fmt.Errorf("the watch history of %d bytes and %v is invalid: give numbers above zero", o.WatchHistory.Bytes, o.WatchHistory.Age)
	}
	if err := serving.CheckToken(o.Token); err != nil {
		return o, err
	}
	switch {
	case o.QuotaBackendBytes < 0:
		return o, fmt.Errorf("the quota of %d bytes for etcd is invalid: give a number above zero", o.QuotaBackendBytes)
	case o.QuotaBackendBytes > 0 && !o.embedded():
		return o, errors.New("the quota is for the embedded etcd: an external etcd has its own quota")
	case o.QuotaBackendBytes == 0:
		o.QuotaBackendBytes = defaultQuota
	}
	if _, _, err := net.SplitHostPort(o.Listen); err != nil {
		return o, fmt.Errorf("cannot listen on %q: give a host and a port, like 127.0.0.1:6443", o.Listen)
	}
	for _, server := range o.Etcd.Servers {
		if !isEtcdURL(server) {
			return o, fmt.Errorf("%q is not an address of an etcd server: give URLs like https://10.0.0.1:2379", server)
		}
	}
	if (o.Etcd.CertFile == "") != (o.Etcd.KeyFile == "") {
		return o, errors.New("etcd's client certificate requires a key, and the key a certificate: give both files or none")
	}
	if o.embedded() && o.Etcd.CAFile+o.Etcd.CertFile != "" {
		return o, errors.New("etcd's certificate files are for an external etcd: give its servers, too")
	}
	if o.embedded() && o.Adopt {
		return o, errors.New("only an external etcd can be adopted: give its servers, too")
	}
	return o, nil
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
