package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// --verify finds an object whose name was changed by a flipped bit in etcd's database.
func TestServeVerifies(t *testing.T) {
	parallel(t)
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "kubeconfig")
	args := []string{"serve", "--controllers=false", "--verify", "--listen", "127.0.0.1:0", "--kubeconfig-out", file,
		"--data-dir", dir}
	p := startProcess(t, args...)
	p.waitStderr(t, "keepwatch: verified 0 objects in etcd; 0 keys belong to no resource of this server\n")
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "victim"}}
	if _, err := clientOf(t, file).CoreV1().ConfigMaps("default").Create(t.Context(), o,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	terminate(t, p)
	p = startProcess(t, args...)
	p.waitStderr(t, "keepwatch: verified 49 objects in etcd; 0 keys belong to no resource of this server\n")
	terminate(t, p)

	database := filepath.Join(dir, "etcd", "member", "snap", "db")
	content, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	content = bytes.ReplaceAll(content, []byte("\x06victim"), []byte("\x06vicuim")) // behind its length: not in the key
	if err := os.WriteFile(database, content, 0o600); err != nil {
		t.Fatal(err)
	}
	p = startProcess(t, args...)
	if code := p.exit(t); code != 1 {
		t.Errorf("exit %d", code)
	}
	text := p.stderr.String()
	if !strings.Contains(text,
		`1 of 49 objects in etcd are damaged: "/registry/configmaps/default/victim": the object is "default/vicuim"; restore a copy`) || strings.Count(text, "\n") != 1 {
		t.Errorf("stderr is %q", text)
	}
}
