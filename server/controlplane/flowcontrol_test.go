package controlplane_test

import (
	"maps"
	"slices"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	flowcontrolclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

// A mandatory object keeps its spec. A start restores what was deleted, and suggested objects that nobody has claimed
// by their annotation; the others it does not write.
func TestFlowControlAfterRestart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	options := controlplane.Options{DataDir: t.TempDir()}
	first := start(t, options)
	flows := connect(t, first.RESTConfig()).typed.FlowcontrolV1()
	before := flowVersions(t, flows)
	if len(before) != 19 {
		t.Errorf("the server begins with %v", slices.Sorted(maps.Keys(before)))
	}
	raise := []byte(`{"spec":{"matchingPrecedence":9999}}`)
	for _, name := range []string{"exempt", "catch-all"} {
		if _, err := flows.FlowSchemas().Patch(ctx, name, types.MergePatchType, raise,
			metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("changing %s: %v", name, err)
		}
	}
	shares := []byte(`{"spec":{"exempt":{"nominalConcurrencyShares":3}}}`)
	must(flows.PriorityLevelConfigurations().Patch(ctx, "exempt", types.MergePatchType, shares, metav1.PatchOptions{}))(t)
	must(flows.FlowSchemas().Patch(ctx, "probes", types.MergePatchType, raise, metav1.PatchOptions{}))(t)
	claim := []byte(
		`{"metadata":{"annotations":{"apf.kubernetes.io/autoupdate-spec":"false"}},"spec":{"matchingPrecedence":9998}}`)
	must(flows.FlowSchemas().Patch(ctx, "system-nodes", types.MergePatchType, claim, metav1.PatchOptions{}))(t)
	for _, name := range []string{"catch-all", "service-accounts"} {
		if err := flows.FlowSchemas().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := flows.PriorityLevelConfigurations().Delete(ctx, "catch-all", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, annotations := range map[string]map[string]string{"own": nil,
		"former": {"apf.kubernetes.io/autoupdate-spec": "true"}} {
		must(flows.FlowSchemas().Create(ctx, &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec: flowcontrolv1.FlowSchemaSpec{
				PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "system"}},
		}, metav1.CreateOptions{}))(t)
	}
	before = flowVersions(t, flows)
	first.stop()

	second := start(t, options)
	flows = connect(t, second.RESTConfig()).typed.FlowcontrolV1()
	after := flowVersions(t, flows)
	for name, was := range before {
		switch name {
		case "FlowSchema probes":
			if precedence := must(flows.FlowSchemas().Get(ctx, "probes",
				metav1.GetOptions{}))(t).Spec.MatchingPrecedence; precedence != 2 {
				t.Errorf("probes has the precedence %d", precedence)
			}
		case "FlowSchema former":
			if _, ok := after[name]; ok {
				t.Errorf("%s exists", name)
			}
		default:
			if is := after[name]; is != was {
				t.Errorf("%s was written: %s, before %s", name, is, was)
			}
		}
	}
	for _, name := range []string{"FlowSchema catch-all", "FlowSchema service-accounts",
		"PriorityLevelConfiguration catch-all"} {
		if _, ok := after[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
}

// flowVersions returns the resource versions of flow schemas and priority levels, by kind and name.
func flowVersions(t *testing.T, flows flowcontrolclient.FlowcontrolV1Interface) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, o := range must(flows.FlowSchemas().List(t.Context(), metav1.ListOptions{}))(t).Items {
		found["FlowSchema "+o.Name] = o.ResourceVersion
	}
	for _, o := range must(flows.PriorityLevelConfigurations().List(t.Context(), metav1.ListOptions{}))(t).Items {
		found["PriorityLevelConfiguration "+o.Name] = o.ResourceVersion
	}
	return found
}

// The status of a StorageVersionMigration is written by /status only, by the typed client.
func TestStorageVersionMigration(t *testing.T) {
	migrations := connect(t, shared.RESTConfig()).typed.StoragemigrationV1().StorageVersionMigrations()
	ctx := t.Context()
	succeeded := metav1.Condition{Type: string(storagemigrationv1.MigrationSucceeded), Status: metav1.ConditionTrue,
		Reason: "Done", LastTransitionTime: metav1.Now()}
	created := must(migrations.Create(ctx, &storagemigrationv1.StorageVersionMigration{
		ObjectMeta: metav1.ObjectMeta{Name: "secrets"},
		Spec:       storagemigrationv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Resource: "secrets"}},
		Status:     storagemigrationv1.StorageVersionMigrationStatus{Conditions: []metav1.Condition{succeeded}},
	}, metav1.CreateOptions{}))(t)
	if len(created.Status.Conditions) != 0 {
		t.Errorf("a create sets the status %+v", created.Status)
	}
	created.Status.Conditions = []metav1.Condition{succeeded}
	updated := must(migrations.UpdateStatus(ctx, created, metav1.UpdateOptions{}))(t)
	if len(updated.Status.Conditions) != 1 {
		t.Errorf("the status is %+v", updated.Status)
	}
	if err := migrations.Delete(ctx, "secrets", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
