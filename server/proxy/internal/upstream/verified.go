package upstream

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/kube"
)

// Verified is a resource of which the proxy follows a few objects. Before each watch it asks for the newest revision,
// and fails if that is below the watch's: as after a restore of the server. A [Source] does so after an outage alone,
// since it has many watches.
type Verified struct{ *kube.Source }

// NewVerified returns a source with the options.
func NewVerified(server *rest.Config, o kube.Options) (Verified, error) {
	source, err := kube.New(server, o)
	return Verified{source}, err
}

// Watch opens a watch from a revision that the server has.
func (v Verified) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	newest, err := v.Newest(ctx)
	if err == nil && newest < from {
		err = behind(newest, from)
	}
	if err != nil {
		return nil, err
	}
	return v.Source.Watch(ctx, from)
}
