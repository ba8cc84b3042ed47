package established_test

import (
	"sync"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/established"
)

// Only the time that no controller writes is replaced, and only while the condition is the same.
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
	cached, truth := time.Unix(1, 0), created.Add(time.Minute)
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
		attributes := admission.NewAttributesRecord(test.written, test.stored, schema.GroupVersionKind{}, "", "",
			schema.GroupVersionResource{}, "status", admission.Update, nil, false, nil)
		if err := (established.Admission{}).Admit(t.Context(), attributes, nil); err != nil {
			t.Fatal(err)
		}
		if got := test.written.Status.Conditions[1].LastTransitionTime.Time; !got.Equal(test.want) {
			t.Errorf("%s: the time is %v, want %v", name, got, test.want)
		}
	}
}

// The condition Established has another time, whatever its status: a definition is served before it is established. A
// second call changes nothing, also not concurrently.
func TestAntedate(t *testing.T) {
	truth := metav1.NewTime(time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC))
	definition := func(kind apiextensionsv1.CustomResourceDefinitionConditionType,
		status apiextensionsv1.ConditionStatus) *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{Status: apiextensionsv1.CustomResourceDefinitionStatus{
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{Type: kind, Status: status,
				LastTransitionTime: truth}},
		}}
	}
	for name, test := range map[string]struct {
		definition *apiextensionsv1.CustomResourceDefinition
		want       time.Time
	}{
		"established":     {definition(apiextensionsv1.Established, apiextensionsv1.ConditionTrue), time.Unix(1, 0)},
		"not established": {definition(apiextensionsv1.Established, apiextensionsv1.ConditionFalse), time.Unix(1, 0)},
		"another":         {definition(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionTrue), truth.Time},
	} {
		for range 2 {
			o, err := established.Antedate(test.definition)
			if err != nil || o != any(test.definition) {
				t.Fatal(o, err)
			}
			if got := test.definition.Status.Conditions[0].LastTransitionTime.Time; !got.Equal(test.want) {
				t.Errorf("%s: the time is %v, want %v", name, got, test.want)
			}
		}
	}
	shared := definition(apiextensionsv1.Established, apiextensionsv1.ConditionTrue)
	_, _ = established.Antedate(shared)
	var again sync.WaitGroup
	for range 2 { // the race detector notices a write
		again.Go(func() { _, _ = established.Antedate(shared) })
	}
	again.Wait()
	if o, err := established.Antedate(new(apiextensionsv1.CustomResourceDefinition)); err != nil || o == nil {
		t.Error(o, err)
	}
	if o, err := established.Antedate("another"); o != "another" || err != nil {
		t.Error(o, err)
	}
}
