package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever the umask and the modes that it finds, nobody else can reach etcd or read a secret.
func TestServeIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--listen", "127.0.0.1:0", "--kubeconfig-out", file, "--data-dir", dir}
	t.Setenv("KEEPWATCH_TEST_UMASK", "0")
	for _, again := range []bool{false, true} {
		p := startProcess(t, args...)
		awaitLine(t, p, "keepwatch: ready")
		if err := private(dir); err != nil {
			t.Error(err)
		}
		if open, err := os.Stat(filepath.Join(dir, "run", "etcd.sock")); err != nil || open.Mode()&fs.ModeSocket == 0 {
			t.Errorf("etcd's socket is %v: %v", open, err)
		}
		terminate(t, p)
		for _, name := range []string{"token", "ca.pem"} {
			if said := strings.Contains(p.stderr.String(), filepath.Join(dir, name)+" mode=0644"); said != again {
				t.Errorf("of %s it says: %s", name, p.stderr)
			}
			if err := os.Chmod(filepath.Join(dir, name), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(dir, "run"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
}

// private fails if others can read or write anything below dir.
func private(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			return fmt.Errorf("%s has the mode %v", path, info.Mode())
		}
		if entry.IsDir() {
			return fs.SkipDir // nobody else gets further
		}
		return nil
	})
}
