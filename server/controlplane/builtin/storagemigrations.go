package builtin

import (
	"strings"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// addStorageMigrationConversion lets StorageVersionMigrations be read in v1beta1, in which kube-apiserver v1.37 stores
// them. The version is not served.
func addStorageMigrationConversion(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(storagemigrationv1beta1.SchemeGroupVersion, &storagemigrationv1beta1.StorageVersionMigration{})
	return scheme.AddConversionFunc((*storagemigrationv1beta1.StorageVersionMigration)(nil),
		(*storagemigrationv1.StorageVersionMigration)(nil),
		func(a, b any, _ conversion.Scope) error {
			in, out := a.(*storagemigrationv1beta1.StorageVersionMigration), b.(*storagemigrationv1.StorageVersionMigration)
			out.ObjectMeta = in.ObjectMeta
			out.Spec = storagemigrationv1.StorageVersionMigrationSpec(in.Spec)
			out.Status = storagemigrationv1.StorageVersionMigrationStatus(in.Status)
			return nil
		})
}

func validateStorageMigration(m *storagemigrationv1.StorageVersionMigration) (errs field.ErrorList) {
	at, of := field.NewPath("spec", "resource"), m.Spec.Resource
	if of.Resource == "" {
		errs = append(errs, field.Required(at.Child("resource"), "resource is required to be set"))
	} else if messages := validation.IsDNS1035Label(of.Resource); len(messages) > 0 {
		errs = append(errs, field.Invalid(at.Child("resource"), of.Resource, strings.Join(messages, ",")))
	}
	if of.Group != "" {
		if messages := validation.IsDNS1123Subdomain(of.Group); len(messages) > 0 {
			errs = append(errs, field.Invalid(at.Child("group"), of.Group, strings.Join(messages, ",")))
		}
	}
	return errs
}
