package builtin

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/certificates"
)

// csrStrategy has the rules of CertificateSigningRequests, which are kube-apiserver's: the user who creates one is in
// its spec, which never changes. Data of other servers that these rules would refuse is not checked again.
type csrStrategy struct{ strategy }

// csrStatusStrategy has the rules of /status, by which a signer stores the certificate or a failure, once.
type csrStatusStrategy struct{ csrStrategy }

// csrApprovalStrategy has the rules of /approval, which writes nothing but conditions.
type csrApprovalStrategy struct{ csrStrategy }

func asCSR(obj runtime.Object) *certificatesv1.CertificateSigningRequest {
	return obj.(*certificatesv1.CertificateSigningRequest)
}

// PrepareForCreate clears the status, and sets the user.
func (s csrStrategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.strategy.PrepareForCreate(ctx, obj)
	spec := &asCSR(obj).Spec
	spec.Username, spec.UID, spec.Groups, spec.Extra = "", "", nil, nil
	user, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return
	}
	spec.Username, spec.UID, spec.Groups = user.GetName(), user.GetUID(), user.GetGroups()
	for key, values := range user.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		spec.Extra[key] = values
	}
}

// PrepareForUpdate keeps everything except metadata.
func (s csrStrategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	s.strategy.PrepareForUpdate(ctx, obj, old)
	asCSR(obj).Spec = asCSR(old).Spec
}

func (s csrStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return append(s.strategy.Validate(ctx, obj), validateCSRSpec(&asCSR(obj).Spec)...)
}

func (s csrStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.resetPaths(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status"))
}

// PrepareForUpdate keeps the spec and existing approvals. Added or removed ones stay, so that validation refuses them.
func (s csrStatusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	request, before := asCSR(obj), asCSR(old)
	request.Spec = before.Spec
	for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved,
		certificatesv1.CertificateDenied} {
		at, was := conditionIndexes(request, kind), conditionsOf(before, kind)
		if len(at) != len(was) {
			continue
		}
		for i, index := range at {
			request.Status.Conditions[index] = was[i]
		}
	}
	setConditionTimes(request, before)
}

func (s csrStatusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	request, before := asCSR(obj), asCSR(old)
	errs := validateCSRStatus(request, before)
	errs = append(errs, validateApprovals(request, before)...)
	if len(before.Status.Certificate) > 0 && !bytes.Equal(request.Status.Certificate, before.Status.Certificate) {
		errs = append(errs, field.Forbidden(field.NewPath("status", "certificate"),
			"updates may not modify existing certificate content"))
	}
	return errs
}

func (s csrStatusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.resetPaths(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status", "conditions"))
}

// PrepareForUpdate keeps everything except metadata and conditions.
func (s csrApprovalStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	request, before := asCSR(obj), asCSR(old)
	setConditionTimes(request, before)
	conditions := request.Status.Conditions
	request.Spec, request.Status = before.Spec, before.Status
	request.Status.Conditions = conditions
}

func (s csrApprovalStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validateCSRStatus(asCSR(obj), asCSR(old))
}

func (s csrApprovalStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.resetPaths(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status", "certificate"))
}

func conditionIndexes(request *certificatesv1.CertificateSigningRequest,
	kind certificatesv1.RequestConditionType) []int {
	var indexes []int
	for i, c := range request.Status.Conditions {
		if c.Type == kind {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

func conditionsOf(request *certificatesv1.CertificateSigningRequest,
	kind certificatesv1.RequestConditionType) []certificatesv1.CertificateSigningRequestCondition {
	var found []certificatesv1.CertificateSigningRequestCondition
	for _, i := range conditionIndexes(request, kind) {
		found = append(found, request.Status.Conditions[i])
	}
	return found
}

// setConditionTimes sets the times that a client did not.
func setConditionTimes(request, before *certificatesv1.CertificateSigningRequest) {
	now := metav1.Now()
	for i := range request.Status.Conditions {
		c := &request.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, was := range conditionsOf(before, c.Type) {
			if was.Status == c.Status && !was.LastTransitionTime.IsZero() {
				c.LastTransitionTime = was.LastTransitionTime
				break
			}
		}
	}
}

// keyUsages are the usages that a request may name, sorted.
var keyUsages = slices.Sorted(slices.Values([]certificatesv1.KeyUsage{
	certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment,
	certificatesv1.UsageKeyEncipherment, certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment,
	certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign, certificatesv1.UsageEncipherOnly,
	certificatesv1.UsageDecipherOnly,
	certificatesv1.UsageAny, certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth,
	certificatesv1.UsageCodeSigning,
	certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME, certificatesv1.UsageIPsecEndSystem,
	certificatesv1.UsageIPsecTunnel,
	certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping, certificatesv1.UsageOCSPSigning,
	certificatesv1.UsageMicrosoftSGC,
	certificatesv1.UsageNetscapeSGC,
}))

const (
	// legacySigner is the signer of requests of a version of the API that is no longer served.
	legacySigner = "kubernetes.io/legacy-unknown"
	// minCertificateSeconds is the shortest lifetime that a request may want.
	minCertificateSeconds = 600
)

func validateCSRSpec(spec *certificatesv1.CertificateSigningRequestSpec) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec")
	if err := validateRequest(spec.Request); err != nil {
		errs = append(errs, field.Invalid(at.Child("request"), spec.Request, err.Error()))
	}
	if len(spec.Usages) == 0 {
		errs = append(errs, field.Required(at.Child("usages"), ""))
	}
	for i, usage := range spec.Usages {
		if !slices.Contains(keyUsages, usage) {
			errs = append(errs, field.NotSupported(at.Child("usages").Index(i), usage, keyUsages))
		}
	}
	for i, usage := range spec.Usages {
		if slices.Contains(spec.Usages[:i], usage) {
			errs = append(errs, field.Duplicate(at.Child("usages").Index(i), usage))
		}
	}
	if spec.SignerName == legacySigner {
		errs = append(errs, field.Invalid(at.Child("signerName"), spec.SignerName,
			"the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, validateSignerName(at.Child("signerName"), spec.SignerName)...)
	}
	if seconds := spec.ExpirationSeconds; seconds != nil && *seconds < minCertificateSeconds {
		errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *seconds,
			"may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

func validateRequest(content []byte) error {
	request, err := certificates.ParseRequest(content)
	if err != nil {
		return err
	}
	return request.CheckSignature()
}

// validateSignerName accepts a domain and a path of dotted names, like example.com/namespace.name.
func validateSignerName(at *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	domain, path, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(path, "/") {
		return field.ErrorList{field.Invalid(at, name,
			"must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	if len(domain) > validation.DNS1123SubdomainMaxLength {
		errs = append(errs, field.TooLong(at, "", validation.DNS1123SubdomainMaxLength))
	}
	errs = append(errs, validateLabels(at, domain, validation.IsDNS1123Label)...)
	if !strings.Contains(domain, ".") {
		errs = append(errs, field.Invalid(at, domain, "should be a domain with at least two segments separated by dots"))
	}
	errs = append(errs, validateLabels(at, path, validation.IsDNS1123Subdomain)...)
	// the two dots and slashes
	const longest = 2*validation.DNS1123SubdomainMaxLength + validation.DNS1123LabelMaxLength + 2
	if len(name) > longest {
		errs = append(errs, field.TooLong(at, "", longest))
	}
	return errs
}

// validateLabels returns the errors of the first wrong label of a dotted name.
func validateLabels(at *field.Path, name string, check func(string) []string) field.ErrorList {
	for label := range strings.SplitSeq(name, ".") {
		var errs field.ErrorList
		for _, why := range check(label) {
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("validating label %q: %s", label, why)))
		}
		if len(errs) > 0 {
			return errs
		}
	}
	return nil
}

// validateCSRStatus checks what any writer of a status must respect: the form of conditions and of the certificate, and
// that decisions stay.
func validateCSRStatus(request, before *certificatesv1.CertificateSigningRequest) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("status")
	if !equality.Semantic.DeepEqual(request.Status.Conditions, before.Status.Conditions) {
		errs = validateConditions(at.Child("conditions"), request.Status.Conditions)
	}
	if !bytes.Equal(request.Status.Certificate, before.Status.Certificate) {
		if err := validateCertificate(request.Status.Certificate); err != nil {
			errs = append(errs, field.Invalid(at.Child("certificate"), "<certificate data>", err.Error()))
		}
	}
	for _, kind := range finalConditions {
		if len(conditionsOf(request, kind)) < len(conditionsOf(before, kind)) {
			errs = append(errs, field.Forbidden(at.Child("conditions"),
				fmt.Sprintf("updates may not remove a condition of type %q", kind)))
		}
	}
	return errs
}

// finalConditions are never false, and never removed.
var finalConditions = []certificatesv1.RequestConditionType{
	certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed,
}

func validateConditions(at *field.Path,
	conditions []certificatesv1.CertificateSigningRequestCondition) field.ErrorList {
	var errs field.ErrorList
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range conditions {
		if c.Type == "" {
			errs = append(errs, field.Required(at.Index(i).Child("type"), ""))
		}
		allowed := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
		if slices.Contains(finalConditions, c.Type) {
			allowed = []corev1.ConditionStatus{corev1.ConditionTrue}
		}
		switch {
		case c.Status == "":
			errs = append(errs, field.Required(at.Index(i).Child("status"), ""))
		case !slices.Contains(allowed, c.Status):
			errs = append(errs, field.NotSupported(at.Index(i).Child("status"), c.Status, allowed))
		}
		if c.Type == certificatesv1.CertificateApproved && seen[certificatesv1.CertificateDenied] ||
			c.Type == certificatesv1.CertificateDenied && seen[certificatesv1.CertificateApproved] {
			errs = append(errs, field.Invalid(at, c.Type, "Approved and Denied conditions are mutually exclusive"))
		}
		if seen[c.Type] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("type"), c.Type))
		}
		seen[c.Type] = true
	}
	return errs
}

// validateCertificate accepts nothing, or PEM blocks of certificates.
func validateCertificate(content []byte) error {
	if len(content) == 0 {
		return nil
	}
	blocks := 0
	for {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		blocks++
		found, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
	}
	if blocks == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}

// validateApprovals refuses new approvals outside /approval. Changed ones cannot occur there, and validateCSRStatus
// refuses removed ones.
func validateApprovals(request, before *certificatesv1.CertificateSigningRequest) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("status", "conditions")
	for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved,
		certificatesv1.CertificateDenied} {
		if len(conditionsOf(request, kind)) > len(conditionsOf(before, kind)) {
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not add a condition of type %q", kind)))
		}
	}
	return errs
}

// csrREST gives a store the rules of CertificateSigningRequests, and returns their subresources.
func csrREST(k *kind, store *genericregistry.Store, rules csrStrategy) map[string]rest.Storage {
	store.CreateStrategy, store.UpdateStrategy, store.ResetFieldsStrategy = rules, rules, rules
	status, approval := csrStatusStrategy{rules}, csrApprovalStrategy{rules}
	return map[string]rest.Storage{
		k.resource + "/status":   &subresource{withRules(store, status, status)},
		k.resource + "/approval": &subresource{withRules(store, approval, approval)},
	}
}

func csrFields(obj runtime.Object) fields.Set {
	return fields.Set{"spec.signerName": asCSR(obj).Spec.SignerName}
}

// anyName accepts every name that a URL path segment can contain, which the library checks.
func anyName(string, bool) []string { return nil }
