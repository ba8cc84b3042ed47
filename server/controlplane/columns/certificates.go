package columns

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
)

// The descriptions are those of the first version, as in kube-apiserver.
var certificatesViews = map[schema.GroupResource]view{
	certificatesv1.Resource("certificatesigningrequests"): show(
		func(r *certificatesv1.CertificateSigningRequest) []any {
			requested := none
			if seconds := r.Spec.ExpirationSeconds; seconds != nil {
				requested = duration.HumanDuration(time.Duration(*seconds) * time.Second)
			}
			return []any{r.Name, age(r), orElse(r.Spec.SignerName, none), r.Spec.Username, requested, certificateState(r)}
		},
		nameColumn,
		ageColumn,
		text("SignerName", described(certificatesv1beta1.CertificateSigningRequestSpec{}, "signerName")),
		text("Requestor", described(certificatesv1beta1.CertificateSigningRequestSpec{}, "request")),
		text("RequestedDuration", described(certificatesv1beta1.CertificateSigningRequestSpec{}, "expirationSeconds")),
		text("Condition", described(certificatesv1beta1.CertificateSigningRequestStatus{}, "conditions")),
	),
}

// certificateState returns how far a request is: its decision, and whether it failed or has a certificate.
func certificateState(r *certificatesv1.CertificateSigningRequest) string {
	has := map[certificatesv1.RequestConditionType]bool{}
	for _, c := range r.Status.Conditions {
		has[c.Type] = true
	}
	state := "Pending"
	switch {
	case has[certificatesv1.CertificateDenied]:
		state = "Denied"
	case has[certificatesv1.CertificateApproved]:
		state = "Approved"
	}
	if has[certificatesv1.CertificateFailed] {
		state += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		state += ",Issued"
	}
	return state
}
