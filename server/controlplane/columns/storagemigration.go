package columns

import (
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var storagemigrationViews = map[schema.GroupResource]view{
	storagemigrationv1.Resource("storageversionmigrations"): show(
		func(m *storagemigrationv1.StorageVersionMigration) []any {
			return []any{m.Name, m.Spec.Resource.String(), migrationState(m)}
		},
		text("Name", described(metav1.ObjectMeta{}, "name")),
		text("Resource", "GroupResource to migrate"),
		text("Status", "Status of the migration"),
	),
}

// migrationState returns the last condition that is true.
func migrationState(m *storagemigrationv1.StorageVersionMigration) string {
	state := "Unknown"
	for _, c := range m.Status.Conditions {
		switch kind := storagemigrationv1.MigrationConditionType(c.Type); kind {
		case storagemigrationv1.MigrationRunning, storagemigrationv1.MigrationFailed, storagemigrationv1.MigrationSucceeded:
			if c.Status == metav1.ConditionTrue {
				state = c.Type
			}
		}
	}
	return state
}
