package established_test

import (
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/keepwatch/keepwatch/controlplane/internal/established"
)

// Only the time that no definition can have is replaced, and only while the condition is the same.
func TestAdmission(t *testing.T) {
	created := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	definition := func(status apiextensions.ConditionStatus, since time.Time) *apiextensions.CustomResourceDefinition {
		return &apiextensions.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)},
			Status: apiextensions.CustomResourceDefinitionStatus{Conditions: []apiextensions.CustomResourceDefinitionCondition{
				{Type: apiextensions.NamesAccepted, Status: apiextensions.ConditionTrue},
				{Type: apiextensions.Established, Status: status, LastTransitionTime: metav1.NewTime(since)},
			}},
		}
	}
	const yes, no = apiextensions.ConditionTrue, apiextensions.ConditionFalse
	cached, truth := created.Add(-2*time.Second), created.Add(time.Minute)
	without := definition(yes, truth)
	without.Status.Conditions = nil
	for name, test := range map[string]struct {
		written, stored *apiextensions.CustomResourceDefinition
		want            time.Time
	}{
		"from the cache":      {definition(yes, cached), definition(yes, truth), truth},
		"another time":        {definition(yes, created), definition(yes, truth), created},
		"another status":      {definition(no, cached), definition(yes, truth), cached},
		"not established yet": {definition(yes, cached), without, cached},
	} {
		attributes := admission.NewAttributesRecord(test.written, test.stored, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "status", admission.Update, nil, false, nil)
		if err := (established.Admission{}).Admit(t.Context(), attributes, nil); err != nil {
			t.Fatal(err)
		}
		if got := test.written.Status.Conditions[1].LastTransitionTime.Time; !got.Equal(test.want) {
			t.Errorf("%s: the time is %v, want %v", name, got, test.want)
		}
	}
}
