package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Other users cannot connect to etcd or read a secret, whatever the umask and the modes of existing files are.
func TestServeIsPrivate(t *testing.T) {
	parallel(t)
	dir := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--listen", "127.0.0.1:0", "--kubeconfig-out", file, "--data-dir", dir}
	setenv(t, "KEEPWATCH_TEST_UMASK=0")
	for _, again := range []bool{false, true} {
		p := startProcess(t, args...)
		p.waitStderr(t, "keepwatch: ready")
		if err := checkPrivate(dir); err != nil {
			t.Error(err)
		}
		if open, err := os.Stat(filepath.Join(dir, "run", "etcd.sock")); err != nil || open.Mode()&fs.ModeSocket == 0 {
			t.Errorf("etcd's socket is %v: %v", open, err)
		}
		terminate(t, p)
		for _, name := range []string{"token", "ca.pem"} {
			if logged := strings.Contains(p.stderr.String(), filepath.Join(dir, name)+" mode=0644"); logged != again {
				t.Errorf("for %s stderr is: %s", name, p.stderr)
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

// checkPrivate returns an error if others can read or write a file in dir.
func checkPrivate(dir string) error {
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
			return fs.SkipDir // other users cannot enter it
		}
		return nil
	})
}
