package controlplane

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"
)

// Options says where a [Server] listens and keeps its data. The zero value is a server with
// temporary data on a free port of 127.0.0.1.
type Options struct {
	// Listen is the host and port to serve HTTPS on. Port 0 takes a free one. Empty is 127.0.0.1:0.
	Listen string
	// DataDir keeps everything that has to survive a restart: the embedded etcd, the certificate
	// authority and the token. It is created when missing. Empty is a temporary folder that is
	// removed when the server ends, and faster, since nothing in it is flushed to the disk.
	DataDir string
	// Token is the bearer token of the one user, keepwatch-admin. Empty is the one kept in DataDir,
	// or else a new random one.
	Token string
	// Kubeconfig is the file that gets an address, certificate authority and token for clients when
	// the server is ready, readable by its owner only. Empty writes none.
	Kubeconfig string
	// Etcd names an external etcd cluster to use instead of the embedded one. If it holds anything when
	// a server first meets it, it is somebody else's: the server only reads it, and answers writes with
	// 405. See Adopt, and [Server.ReadOnly].
	Etcd EtcdCluster
	// QuotaBackendBytes is the size of the embedded etcd's database at which etcd refuses creates and
	// updates, as etcd's flag of this name. Zero is 8 GiB.
	QuotaBackendBytes int64
	// Adopt takes an external etcd with all it holds for this server's own, from now on. The server then
	// writes there what it does not validate, compacts etcd's history, and finishes the deletion of
	// namespaces knowing only the kinds that it serves itself: what else is in them is left behind.
	Adopt bool
	// Verify reads every object in etcd before the server is ready, and refuses to serve if one is damaged.
	Verify bool
	// Storage says what answers reads and watches. Empty is StoreStorage.
	Storage Storage
	// WatchHistory bounds the history of each resource, from which watches go on exactly; behind it
	// they are told the difference. With StoreStorage only. Zero fields are 64 MiB and 15 minutes.
	WatchHistory WatchHistory
}

// WatchHistory bounds a history by what it weighs and by its age.
type WatchHistory struct {
	Bytes int64
	Age   time.Duration
}

// Storage is what answers reads and watches. The values are closed.
type Storage string

const (
	// StoreStorage is package storage: a store for each resource, fed straight from etcd.
	StoreStorage Storage = "store"
	// UpstreamStorage is k8s.io/apiserver's own watch cache, to compare with.
	UpstreamStorage Storage = "upstream"
)

// defaultQuota is the largest size that etcd is recommended for, and enough for 100,000s of pods.
const defaultQuota = 8 << 30

// EtcdCluster is how to reach an external etcd, as in kube-apiserver's --etcd-* flags.
type EtcdCluster struct {
	// Servers are the members' client URLs (scheme://host:port); empty is the embedded etcd.
	Servers []string
	// CAFile, CertFile and KeyFile secure the connection (PEM); the last two go together.
	CAFile, CertFile, KeyFile string
}

// complete checks the options and fills in the defaults.
func (o Options) complete() (Options, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	switch o.Storage {
	case "":
		o.Storage = StoreStorage
	case StoreStorage, UpstreamStorage:
	default:
		return o, fmt.Errorf("there is no storage %q: give %q or %q", o.Storage, StoreStorage, UpstreamStorage)
	}
	if o.WatchHistory.Bytes < 0 || o.WatchHistory.Age < 0 {
		return o, fmt.Errorf("a watch history of %d bytes and %v: give numbers above zero", o.WatchHistory.Bytes, o.WatchHistory.Age)
	}
	if err := checkToken(o.Token); err != nil {
		return o, err
	}
	switch {
	case o.QuotaBackendBytes < 0:
		return o, fmt.Errorf("a quota of %d bytes for etcd: give a number above zero", o.QuotaBackendBytes)
	case o.QuotaBackendBytes > 0 && len(o.Etcd.Servers) > 0:
		return o, errors.New("the quota is for the embedded etcd: an external cluster has its own")
	case o.QuotaBackendBytes == 0:
		o.QuotaBackendBytes = defaultQuota
	}
	if _, _, err := net.SplitHostPort(o.Listen); err != nil {
		return o, fmt.Errorf("cannot listen on %q: give a host and a port, like 127.0.0.1:6443", o.Listen)
	}
	for _, server := range o.Etcd.Servers {
		if !isEtcdURL(server) {
			return o, fmt.Errorf("%q is no address of an etcd server: give URLs like https://10.0.0.1:2379", server)
		}
	}
	if (o.Etcd.CertFile == "") != (o.Etcd.KeyFile == "") {
		return o, errors.New("etcd's client certificate and key go together: give both files or none")
	}
	if len(o.Etcd.Servers) == 0 && o.Etcd.CAFile+o.Etcd.CertFile != "" {
		return o, errors.New("etcd's certificate files are for an external cluster: name its servers, too")
	}
	if len(o.Etcd.Servers) == 0 && o.Adopt {
		return o, errors.New("only an external etcd can be adopted: name its servers, too")
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
