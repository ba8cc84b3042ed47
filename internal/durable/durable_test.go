package durable

import (
	"os"
	"path/filepath"
	"testing"
)

// What survives a loss of power is tested in test/powerloss, on a file system that forgets.
func TestWriteFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 { // the second time, they exist
		if err := MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "file")
	for _, content := range []string{"first", "second"} {
		if err := WriteFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if found, err := os.ReadFile(path); err != nil || string(found) != content {
			t.Errorf("the file has %q, %v, want %q", found, err, content)
		}
	}
	if found, err := os.ReadDir(dir); err != nil || len(found) != 1 {
		t.Errorf("the folder has %v, %v", found, err)
	}
	if about, err := os.Stat(dir); err != nil || about.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v", about.Mode(), err)
	}
	if err := MkdirAll(filepath.Join(path, "below")); err == nil {
		t.Error("a folder below a file was made")
	}
	if err := SyncDir(filepath.Join(dir, "no-folder")); err == nil {
		t.Error("a folder that does not exist was synced")
	}
}

// A relative path is below the working folder.
func TestMkdirAllRelative(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"a/b/c", "./d", "."} {
		if err := MkdirAll(dir); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if _, err := os.Stat("a/b/c"); err != nil {
		t.Error(err)
	}
}
