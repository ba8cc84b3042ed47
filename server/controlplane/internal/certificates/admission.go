package certificates

import (
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Admission refuses approvals and signatures by users without the verb approve or sign on the signer, and requests for
// clients that would be in system:masters.
type Admission struct {
	*admission.Handler
	authorizer authorizer.Authorizer
}

var _ admission.ValidationInterface = (*Admission)(nil)

// NewAdmission returns the admission by the decisions of an authorizer.
func NewAdmission(authorizer authorizer.Authorizer) *Admission {
	return &Admission{admission.NewHandler(admission.Create, admission.Update), authorizer}
}

// Validate returns 403 Forbidden for what is refused.
func (a *Admission) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetResource().GroupResource() != certificatesv1.Resource("certificatesigningrequests") {
		return nil
	}
	var err error
	switch request, before := objectsOf(attributes); attributes.GetSubresource() {
	case "":
		if attributes.GetOperation() == admission.Create {
			err = checkSubject(request)
		}
	case "approval":
		if !a.may(ctx, "approve", attributes.GetUserInfo(), before.Spec.SignerName) {
			err = fmt.Errorf("user not permitted to approve requests with signerName %q", before.Spec.SignerName)
		}
	case "status":
		if signs(request, before) && !a.may(ctx, "sign", attributes.GetUserInfo(), before.Spec.SignerName) {
			err = fmt.Errorf("user not permitted to sign requests with signerName %q", before.Spec.SignerName)
		}
	}
	if err != nil {
		return admission.NewForbidden(attributes, err)
	}
	return nil
}

// objectsOf returns the object of a write, and the stored one in an update. Other types are empty objects, whose signer
// nobody may use.
func objectsOf(attributes admission.Attributes) (request, before *certificatesv1.CertificateSigningRequest) {
	request, _ = attributes.GetObject().(*certificatesv1.CertificateSigningRequest)
	before, _ = attributes.GetOldObject().(*certificatesv1.CertificateSigningRequest)
	if request == nil {
		request = &certificatesv1.CertificateSigningRequest{}
	}
	if before == nil {
		before = &certificatesv1.CertificateSigningRequest{}
	}
	return request, before
}

// signs reports whether a write of the status has something that a signer decides.
func signs(request, before *certificatesv1.CertificateSigningRequest) bool {
	return !slices.Equal(request.Status.Certificate, before.Status.Certificate) ||
		!equality.Semantic.DeepEqual(request.Status.Conditions, before.Status.Conditions)
}

// checkSubject refuses client certificates for the group that may do everything.
func checkSubject(request *certificatesv1.CertificateSigningRequest) error {
	const signer = certificatesv1.KubeAPIServerClientSignerName
	if request.Spec.SignerName != signer {
		return nil
	}
	parsed, err := ParseRequest(request.Spec.Request)
	if err != nil {
		return fmt.Errorf("failed to parse CSR: %w", err)
	}
	if slices.Contains(parsed.Subject.Organization, user.SystemPrivilegedGroup) {
		return fmt.Errorf("use of %s signer with %s group is not allowed", signer, user.SystemPrivilegedGroup)
	}
	return nil
}

// may reports whether a user has a verb on a signer, or on all signers of its domain.
func (a *Admission) may(ctx context.Context, verb string, u user.Info, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, _ := a.authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: u, Verb: verb, Name: name, APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers",
			ResourceRequest: true,
		})
		if decision == authorizer.DecisionAllow {
			return true
		}
	}
	return false
}
