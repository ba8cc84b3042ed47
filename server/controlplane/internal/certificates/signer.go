package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/server/internal/worker"
)

const (
	// maxLife is the lifetime of a certificate, unless its request wants less: kube-controller-manager's default.
	maxLife = 365 * 24 * time.Hour
	// minLife is the shortest lifetime.
	minLife = 10 * time.Minute
)

// The delays before a request is tried again after an error; they double.
const (
	minDelay = 50 * time.Millisecond
	maxDelay = time.Minute
)

// Sign returns a certificate, PEM, for the key and the names of a request. It is valid from now, for life at most.
type Sign func(request *x509.CertificateRequest, usage x509.KeyUsage, life time.Duration) ([]byte, error)

// Signer signs approved requests for the signer kubernetes.io/kube-apiserver-client.
type Signer struct {
	client   kubernetes.Interface
	sign     Sign
	informer cache.SharedIndexInformer
	worker   *worker.Worker[string]
}

// NewSigner returns a Signer that writes and watches by client.
func NewSigner(client kubernetes.Interface, sign Sign) (*Signer, error) {
	ofSigner := fields.OneTermEqualSelector("spec.signerName", certificatesv1.KubeAPIServerClientSignerName).String()
	s := &Signer{
		client: client, sign: sign,
		informer: certificatesinformers.NewFilteredCertificateSigningRequestInformer(client, 0, nil,
			func(o *metav1.ListOptions) { o.FieldSelector = ofSigner }),
	}
	s.worker = worker.New(worker.Options[string]{
		Handle: s.handle, Retrying: report, MinDelay: minDelay, MaxDelay: maxDelay,
	})
	add := func(obj any) { s.worker.Add(obj.(*certificatesv1.CertificateSigningRequest).Name) }
	_, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) },
	})
	return s, err
}

// Run signs until ctx is done.
func (s *Signer) Run(ctx context.Context) {
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		s.informer.RunWithContext(ctx)
	}()
	defer func() { <-followed }()
	s.worker.Run(ctx)
}

func report(ctx context.Context, name string, err error) {
	utilruntime.HandleErrorWithContext(ctx, err, "The signature of a certificate is retried",
		"certificateSigningRequest", name)
}

// handle signs a request that is approved and not finished, or marks it as failed if its usages are not those of a
// client.
func (s *Signer) handle(ctx context.Context, name string) error {
	found, ok, err := s.informer.GetStore().GetByKey(name)
	if err != nil || !ok {
		return err
	}
	request := found.(*certificatesv1.CertificateSigningRequest)
	finished := has(request, certificatesv1.CertificateFailed) || has(request, certificatesv1.CertificateDenied) ||
		len(request.Status.Certificate) > 0
	if finished || !has(request, certificatesv1.CertificateApproved) {
		return nil
	}
	request = request.DeepCopy()
	parsed, err := ParseRequest(request.Spec.Request)
	if err != nil {
		return err
	}
	usage, err := clientUsage(request.Spec.Usages)
	if err != nil {
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, LastUpdateTime: metav1.Now(),
			Reason: "SignerValidationFailure", Message: err.Error(),
		})
	} else if request.Status.Certificate, err = s.sign(parsed, usage, life(request.Spec.ExpirationSeconds)); err != nil {
		return err
	}
	_, err = s.client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, request, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) { // deleted meanwhile
		return nil
	}
	return err
}

func has(request *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// clientUsage returns the usage of a client's key. Client authentication is required, and of the others only these
// two are allowed.
func clientUsage(usages []certificatesv1.KeyUsage) (x509.KeyUsage, error) {
	var usage x509.KeyUsage
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageDigitalSignature:
			usage |= x509.KeyUsageDigitalSignature
		case certificatesv1.UsageKeyEncipherment:
			usage |= x509.KeyUsageKeyEncipherment
		case certificatesv1.UsageClientAuth:
		default:
			return 0, fmt.Errorf("invalid usage for client certificate: %s", u)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return 0, fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return usage, nil
}

// life returns the lifetime of a certificate that was requested to expire after some seconds, or nil.
func life(requested *int32) time.Duration {
	if requested == nil {
		return maxLife
	}
	return min(max(time.Duration(*requested)*time.Second, minLife), maxLife)
}
