package durable

import (
	"errors"
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

// A temporary file that is there already is not written to: others could read it, or it is a link to another file.
func TestWriteFileBesideARemnant(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, leave := range map[string]func() error{
		"a file that others can read": func() error {
			return errors.Join(os.WriteFile(path+".new", []byte("a longer remnant"), 0o600), os.Chmod(path+".new", 0o644))
		},
		"a file that nobody can write": func() error { return os.WriteFile(path+".new", nil, 0o400) },
		"a link":                       func() error { return os.Symlink(other, path+".new") },
	} {
		if err := leave(); err != nil {
			t.Fatal(err)
		}
		if err := WriteFile(path, []byte("secret")); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if about, err := os.Lstat(path); err != nil || about.Mode() != 0o600 {
			t.Errorf("%s: the file is %v, %v", name, about.Mode(), err)
		}
		if found, err := os.ReadFile(path); err != nil || string(found) != "secret" {
			t.Errorf("%s: the file has %q, %v", name, found, err)
		}
	}
	if found, err := os.ReadFile(other); err != nil || string(found) != "other" {
		t.Errorf("the linked file has %q, %v", found, err)
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
