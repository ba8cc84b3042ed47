package differential

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestReadSamples(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "test", "integration", "etcd")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	source := "package etcd\nfunc data(namespace, image string) any {\n\treturn map[schema.GroupVersionResource]StorageData{\n" +
		"gvr(\"apps\", \"v1\", \"things\"): {Stub: `{\"a\":\"` + namespace + `\",\"b\":\"` + image + `\"}`, MutatedStub: \"{}\", IntroducedVersion: \"1.2\"},\n" +
		"gvr(\"\", \"v1\", \"empty\"): {MutatedStub: `{}`},\n\t}\n}\n"
	if err := os.WriteFile(filepath.Join(folder, "data.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadSamples(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []Sample{{
		Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "things"},
		Object:   `{"a":"` + sampleNamespace + `","b":"example.com/image:1"}`, Change: "{}",
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
