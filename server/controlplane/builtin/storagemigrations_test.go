package builtin

import (
	"testing"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The codec of the storage reads what kube-apiserver v1.37 stores, and writes v1.
func TestStoredStorageVersionMigration(t *testing.T) {
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	stored, ok := registry.Stored(storagemigrationv1.Resource("storageversionmigrations"))
	if !ok {
		t.Fatal("no storage")
	}
	old, err := runtime.Encode(registry.Codecs.LegacyCodec(storagemigrationv1beta1.SchemeGroupVersion),
		&storagemigrationv1beta1.StorageVersionMigration{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec: storagemigrationv1beta1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Group: "b",
				Resource: "c"}},
			Status: storagemigrationv1beta1.StorageVersionMigrationStatus{ResourceVersion: "7"},
		})
	if err != nil {
		t.Fatal(err)
	}
	obj, err := runtime.Decode(stored.Codec, old)
	if err != nil {
		t.Fatalf("%s: %v", old, err)
	}
	m, ok := obj.(*storagemigrationv1.StorageVersionMigration)
	if !ok || m.Name != "a" || m.Spec.Resource.Resource != "c" || m.Status.ResourceVersion != "7" {
		t.Errorf("%s is read as %#v", old, obj)
	}
	written, err := runtime.Encode(stored.Codec, m)
	if err != nil {
		t.Fatal(err)
	}
	if _, kind, err := registry.Codecs.UniversalDeserializer().Decode(written, nil, nil); err != nil ||
		kind.Version != "v1" {
		t.Errorf("it is written in %v: %v", kind, err)
	}
}
