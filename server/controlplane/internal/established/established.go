// Package established makes a single API server create custom resources as soon as their definition is served.
//
// k8s.io/apiextensions-apiserver delays each create by two seconds while the condition Established is younger than
// that, so that other API servers learn of the definition meanwhile. In a test these are most of its time. A server
// that has its data to itself does not need the wait: its cache of definitions, by which the creates are delayed, has
// an older time in that condition. The condition's status does not matter: a definition is served as soon as its names
// are accepted, when Established is still false, and since a moment ago. What clients read does not come from this
// cache; what the controllers write back from it gets the true time again.
//
//	established.go   the time in the cache, and the admission plugin that restores it
package established

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

// longAgo is a time that no controller writes.
var longAgo = metav1.Unix(1, 0)

// Antedate gives the condition Established of a definition the older time, whatever its status. It is a transform of an
// informer. An object that it gets again may be shared, and is not changed.
func Antedate(o any) (any, error) {
	d, ok := o.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return o, nil
	}
	if c := apihelpers.FindCRDCondition(d, apiextensionsv1.Established); c != nil &&
		!c.LastTransitionTime.Equal(&longAgo) {
		c.LastTransitionTime = longAgo
	}
	return o, nil
}

// Admission restores the time when a controller writes the status of a definition that it has from the cache.
type Admission struct{}

var _ admission.MutationInterface = Admission{}

// Handles returns whether it is about updates.
func (Admission) Handles(o admission.Operation) bool { return o == admission.Update }

// Admit restores the time, if the condition has not changed otherwise.
func (Admission) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	written, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	stored, was := a.GetOldObject().(*apiextensions.CustomResourceDefinition)
	if !ok || !was {
		return nil
	}
	to, from := apiextensions.FindCRDCondition(written, apiextensions.Established), apiextensions.FindCRDCondition(stored,
		apiextensions.Established)
	if to != nil && from != nil && to.Status == from.Status && to.LastTransitionTime.Equal(&longAgo) {
		to.LastTransitionTime = from.LastTransitionTime
	}
	return nil
}
