package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/services"
)

// serviceTimeout bounds the read of a service for a webhook's call.
const serviceTimeout = 5 * time.Second

// serviceResolver returns the addresses of webhooks that are registered by Service, as kube-apiserver does: the
// external name, or the cluster IP. Nothing answers at the cluster IPs that this server gives, and a machine of another
// network may have the address: so they are not returned. Others were stored by another server, an earlier version, or
// with other ranges.
type serviceResolver struct {
	client kubernetes.Interface
	ranges services.Ranges
}

// ResolveEndpoint returns the URL of a port of a service, or an error that says why there is none.
func (r serviceResolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	ctx, cancel := context.WithTimeout(context.Background(), serviceTimeout)
	defer cancel()
	service, err := r.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	hasPort := slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	host := service.Spec.ClusterIP
	switch {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		host = service.Spec.ExternalName
	case host == "" || host == corev1.ClusterIPNone || r.ranges.Contains(host):
		return nil, fmt.Errorf("the service %s/%s cannot be reached, since this server has no cluster network: "+
			"register the webhook by URL, or give the service an externalName that this machine can reach", namespace, name)
	case !hasPort:
		return nil, fmt.Errorf("the service %s/%s has no port %d", namespace, name, port)
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(port)))}, nil
}
