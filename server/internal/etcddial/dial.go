// Package etcddial connects the API server's parts to etcd, all with the same
// timeouts, TLS files and flow control.
package etcddial

import (
	"fmt"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/keepwatch/keepwatch/server/source/etcd"
)

const (
	// Timeout bounds how long a connection may take.
	Timeout = 20 * time.Second

	// keepaliveTime and keepaliveTimeout are kube-apiserver's: an etcd that does not
	// answer for both is disconnected.
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
)

// Cluster names an etcd and the TLS files for it. Without files the client uses
// the scheme of the servers' URLs alone.
type Cluster struct {
	Servers                   []string
	CAFile, CertFile, KeyFile string
}

// Dial returns a client of the cluster. It connects in the background: an etcd that
// does not answer is no error. options are added to those of [etcd.DialOptions].
func Dial(cluster Cluster, options ...grpc.DialOption) (*clientv3.Client, error) {
	config := clientv3.Config{
		Endpoints:            cluster.Servers,
		DialTimeout:          Timeout,
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: keepaliveTimeout,
		Logger:               zap.NewNop(),
		DialOptions:          append(etcd.DialOptions(), options...),
	}
	if cluster.CAFile != "" || cluster.CertFile != "" || cluster.KeyFile != "" {
		files := transport.TLSInfo{CertFile: cluster.CertFile, KeyFile: cluster.KeyFile, TrustedCAFile: cluster.CAFile}
		tls, err := files.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("cannot use etcd's certificate files: %w", err)
		}
		config.TLS = tls
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("cannot use etcd at %v: %w", cluster.Servers, err)
	}
	return client, nil
}
