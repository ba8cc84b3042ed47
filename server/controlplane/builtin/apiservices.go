package builtin

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
)

// prepareAPIService sets the condition Available: a local group and version is available. No requests are forwarded, so
// one of another server is not, even if that server runs.
func prepareAPIService(obj runtime.Object) {
	service := obj.(*apiregistrationv1.APIService)
	condition := helper.NewLocalAvailableAPIServiceCondition()
	if service.Spec.Service != nil {
		condition = apiregistrationv1.APIServiceCondition{
			Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse, Reason: "NotForwarded",
			Message:            "this server does not forward requests to other API servers",
			LastTransitionTime: metav1.Now(),
		}
	}
	helper.SetAPIServiceCondition(service, condition)
}

// prepareAPIServiceUpdate sets the condition again when the server that answers changes.
func prepareAPIServiceUpdate(obj, old runtime.Object) {
	is, was := obj.(*apiregistrationv1.APIService).Spec.Service, old.(*apiregistrationv1.APIService).Spec.Service
	if (is == nil) != (was == nil) {
		prepareAPIService(obj)
	}
}

func validateAPIService(s *apiregistrationv1.APIService) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &s.Spec
	if name := spec.Version + "." + spec.Group; s.Name != name {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), s.Name,
			fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", name)))
	}
	if spec.Group == "" && spec.Version != "v1" {
		errs = append(errs, field.Required(at.Child("group"), "only v1 may have an empty group and it better be legacy kube"))
	}
	if spec.Group != "" {
		errs = append(errs, invalids(at.Child("group"), spec.Group, validation.IsDNS1123Subdomain(spec.Group))...)
	}
	errs = append(errs, invalids(at.Child("version"), spec.Version, validation.IsDNS1035Label(spec.Version))...)
	if spec.GroupPriorityMinimum <= 0 || spec.GroupPriorityMinimum > 20000 {
		errs = append(errs, field.Invalid(at.Child("groupPriorityMinimum"), spec.GroupPriorityMinimum,
			"must be positive and less than 20000"))
	}
	if spec.VersionPriority <= 0 || spec.VersionPriority > 1000 {
		errs = append(errs, field.Invalid(at.Child("versionPriority"), spec.VersionPriority,
			"must be positive and less than 1000"))
	}
	insecure, ca := at.Child("insecureSkipTLSVerify"), len(spec.CABundle)
	if spec.Service != nil {
		if spec.InsecureSkipTLSVerify && ca > 0 {
			errs = append(errs, field.Invalid(insecure, spec.InsecureSkipTLSVerify, "may not be true if caBundle is present"))
		}
		return append(errs, validateServiceReference(at.Child("service"), spec.Service)...)
	}
	if ca > 0 {
		errs = append(errs, field.Invalid(at.Child("caBundle"), fmt.Sprintf("%d bytes", ca),
			"local APIServices may not have a caBundle"))
	}
	if spec.InsecureSkipTLSVerify {
		errs = append(errs, field.Invalid(insecure, spec.InsecureSkipTLSVerify,
			"local APIServices may not have insecureSkipTLSVerify"))
	}
	return errs
}

func validateServiceReference(at *field.Path, service *apiregistrationv1.ServiceReference) (errs field.ErrorList) {
	if service.Namespace == "" {
		errs = append(errs, field.Required(at.Child("namespace"), ""))
	}
	if service.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	port := int32(443)
	if service.Port != nil {
		port = *service.Port
	}
	if messages := validation.IsValidPortNum(int(port)); len(messages) > 0 {
		errs = append(errs, field.Invalid(at.Child("port"), port, "port is not valid: "+strings.Join(messages, ", ")))
	}
	return errs
}
