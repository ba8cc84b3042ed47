package controlplane

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/utils/clock"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/embeddedetcd"
	"github.com/keepwatch/keepwatch/server/internal/etcddial"
	"github.com/keepwatch/keepwatch/server/source/etcd"
	"github.com/keepwatch/keepwatch/server/storage"
)

const (
	// compactInterval is the age at which old revisions are compacted, as in kube-apiserver.
	compactInterval = 5 * time.Minute
	dialTimeout     = etcddial.Timeout
)

// etcdDatabase is an etcd, over one shared client connection.
type etcdDatabase struct {
	client    *clientv3.Client
	lastWrite etcd.LastWrite
	writes    *writeInterceptor
	foreign   string // a key of another server; empty if the etcd is this server's own
	compactor interface {
		etcd3.Compactor
		Stop()
	}
}

// openEtcd connects to etcd, decides whether etcd is this server's own (always if own is true), and
// starts to compact it if it is.
func openEtcd(ctx context.Context, cluster EtcdCluster, own bool) (*etcdDatabase, error) {
	d := &etcdDatabase{writes: &writeInterceptor{}}
	client, err := etcddial.Dial(etcddial.Cluster(cluster), grpc.WithChainUnaryInterceptor(d.writes.intercept))
	if err != nil {
		return nil, err
	}
	d.client = client
	if err := d.claim(ctx, own); err != nil {
		client.Close()
		return nil, fmt.Errorf("etcd at %s doesn't answer: %w; check the address, the certificates, and that it runs",
			strings.Join(cluster.Servers, ", "), err)
	}
	interval := compactInterval
	if d.readOnly() {
		interval = 0 // never
	}
	d.compactor = etcd3.NewCompactor(client, interval, clock.RealClock{}, nil)
	return d, nil
}

// checkFeatures starts the check of etcd's features for the etcd3 storages, in the background. It is
// called after the data was verified: the library logs an error if the end of a start interrupts the
// check.
func (d *etcdDatabase) checkFeatures() {
	feature.DefaultFeatureSupportChecker.CheckClient(d.client.Ctx(), d.client, apistorage.RequestWatchProgress)
}

func (d *etcdDatabase) writer(string) (*kubernetes.Client, etcd3.Compactor) {
	return d.writerWatching(d.client.Watcher), d.compactor
}

// writerWatching returns a client over the shared connection, with a watcher.
func (d *etcdDatabase) writerWatching(watcher clientv3.Watcher) *kubernetes.Client {
	own := clientv3.NewCtxClient(d.client.Ctx())
	own.KV = etcd3.NewETCDLatencyTracker(d.client.KV)
	own.Lease, own.Maintenance, own.Watcher = d.client.Lease, d.client.Maintenance, watcher
	client := &kubernetes.Client{Client: own}
	client.Kubernetes = client
	return client
}

func (d *etcdDatabase) reader(config *storage.Config) {
	config.Client, config.LastWrite = d.client, &d.lastWrite
}

func (d *etcdDatabase) compact(ctx context.Context) error {
	newest, err := d.client.Get(ctx, ownerKey)
	if err == nil {
		_, err = d.client.Compact(ctx, newest.Header.Revision)
	}
	return err
}

// ping reads one key of etcd.
func (d *etcdDatabase) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storagebackend.DefaultHealthcheckTimeout)
	defer cancel()
	_, err := d.client.Get(ctx, rootPrefix+"/health")
	return err
}

// hasSpace returns an error while etcd refuses writes because it has no space.
func (d *etcdDatabase) hasSpace(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storagebackend.DefaultHealthcheckTimeout)
	defer cancel()
	status, err := pb.NewMaintenanceClient(d.client.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
	if err == nil && embeddedetcd.HasNoSpaceAlarm(status) {
		return errNoSpace
	}
	return nil // ping reports that etcd is unavailable
}

// readOnly reports whether the etcd belongs to another server.
func (d *etcdDatabase) readOnly() bool { return d.foreign != "" }

func (d *etcdDatabase) close() {
	d.compactor.Stop()
	d.client.Close()
}
