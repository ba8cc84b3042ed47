package controlplane

import (
	"context"
	"fmt"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/embeddedetcd"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/serving"
)

// serveEmbedded checks etcd's data, starts the embedded etcd and serves until ctx is done or etcd
// fails.
//
// New credentials are stored after etcd has started on a new folder. Credentials without etcd's data
// therefore mean that the data was lost.
func (s *Server) serveEmbedded(ctx context.Context, listener *serving.Listener, data *datadir.Dir) error {
	found, err := embeddedetcd.Check(ctx, data)
	if err != nil {
		return err
	}
	if !found && serving.HasCredentials(data) {
		return fmt.Errorf(
			"%s has no data although there is a token and a certificate authority: restore a copy, or remove these two files to start empty", data.File("etcd"))
	}
	var credentials *serving.Credentials
	if found { // before etcd changes the data
		if credentials, err = serving.LoadCredentials(listener.Addr(), data, s.options.credentials()); err != nil {
			return err
		}
	}
	etcd, err := embeddedetcd.Start(ctx, data, s.options.QuotaBackendBytes)
	if err != nil {
		return err
	}
	defer etcd.Stop()
	if !found {
		if credentials, err = serving.LoadCredentials(listener.Addr(), data, s.options.credentials()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(etcd.Failed(), cancel)()
	err = s.serveEtcd(ctx, listener, credentials, data, EtcdCluster{Servers: []string{etcd.Endpoint}})
	if etcd.Failed().Err() != nil { // the cause of any other error
		err = fmt.Errorf("etcd stopped: %w", context.Cause(etcd.Failed()))
	}
	return err
}
