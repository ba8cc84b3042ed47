package controlplane

import (
	"context"
	"errors"
	"net/http"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/embeddedetcd"
)

// errNoSpace is the error of a write while etcd has no space. The status is kube-apiserver's, the
// message is ours.
var errNoSpace = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status:  metav1.StatusFailure,
	Code:    http.StatusInternalServerError,
	Reason:  metav1.StatusReasonInternalError,
	Message: embeddedetcd.ErrNoSpace.Error(),
	Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: causeNoSpace,
		Message: rpctypes.ErrNoSpace.Error()}}},
}}

// causeNoSpace identifies errNoSpace for clients.
const causeNoSpace metav1.CauseType = "EtcdNoSpace"

// spaceErrors is an etcd3 storage that returns errNoSpace where etcd returns its own error.
type spaceErrors struct{ closable }

func (s spaceErrors) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return spaceError(s.closable.Create(ctx, key, obj, out, ttl))
}

func (s spaceErrors) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, update apistorage.UpdateFunc, cached runtime.Object) error {
	return spaceError(s.closable.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached))
}

func spaceError(err error) error {
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return errNoSpace
	}
	return err
}
