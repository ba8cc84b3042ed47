package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/pause"
)

const (
	// identityRetry is the wait before the cluster's identity is asked for again.
	identityRetry = time.Second
	// unidentifiedFor is how long a server may deny that there is one. A server that starts does: it creates kube-system,
	// and denies before it has read the roles.
	unidentifiedFor = 10 * time.Second
)

// AwaitCluster returns the identity of the cluster: the UID of the namespace kube-system, or the server's address if
// that may not be read, or does not exist. It waits until the server says so, or ctx ends.
func (s Server) AwaitCluster(ctx context.Context) string {
	var denied time.Time // since when
	for {
		uid, err := s.systemUID(ctx)
		if err == nil {
			return uid
		}
		if r, ok := errors.AsType[Refusal](err); !ok || r.Code != http.StatusForbidden && r.Code != http.StatusNotFound {
			denied = time.Time{}
		} else if denied.IsZero() {
			denied = time.Now()
		} else if time.Since(denied) >= unidentifiedFor {
			return s.address.String()
		}
		klog.V(2).InfoS("The identity of the cluster is not known: the index on disk waits", "err", err)
		if pause.For(ctx, identityRetry) != nil {
			return ""
		}
	}
}

// systemUID returns the UID of the namespace kube-system.
func (s Server) systemUID(ctx context.Context) (string, error) {
	body, _, err := s.getJSON(ctx, "/api/v1/namespaces/"+metav1.NamespaceSystem, nil)
	if err != nil {
		return "", err
	}
	var namespace metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &namespace); err != nil || namespace.UID == "" {
		return "", fmt.Errorf("the namespace %s has no UID: %v", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}
