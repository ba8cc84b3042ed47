package cluster

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/startup"
	"github.com/keepwatch/keepwatch/stream"
)

// identityTimeout bounds one request for the identity of the cluster.
const identityTimeout = 10 * time.Second

// Identity returns the identity of the stream in a state on disk.
func (t *Target) Identity(ctx context.Context, repeat Repeat) (stream.Identity, error) {
	cluster, err := Identify(ctx, t.Config, repeat)
	return stream.Identity{
		Cluster: cluster, Resource: t.Name(), Namespace: t.Namespace,
		LabelSelector: t.Labels, FieldSelector: t.Fields,
	}, err
}

// Identify identifies the cluster of a server by the UID of its namespace kube-system, or by its address
// if that namespace cannot be read or does not exist.
func Identify(ctx context.Context, config *rest.Config, repeat Repeat) (stream.Cluster, error) {
	cluster := stream.Cluster{Server: config.Host}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return stream.Cluster{}, err
	}
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	err = repeat(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, identityTimeout)
		defer cancel()
		o, err := namespaces.Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		switch {
		case err == nil:
			cluster.UID = string(o.UID)
		case !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
			return fmt.Errorf("can't read the identity of the cluster from its namespace kube-system: %w",
				startup.WithoutAddress(err))
		}
		return nil
	})
	return cluster, err
}
