package privatefile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A program that has opened the former file, and a file that a link names, receive nothing.
func TestWriteReplaces(t *testing.T) {
	dir := t.TempDir()
	target, path := filepath.Join(dir, "target"), filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(target, []byte("theirs"), 0o666), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // of a link, and of a file that others may read
		former, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer former.Close()
		if err := Write(path, []byte("secret")); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(former); string(text) != "theirs" || err != nil {
			t.Errorf("who had opened the file reads %q, %v", text, err)
		}
		if text, err := os.ReadFile(target); string(text) != "theirs" || err != nil {
			t.Errorf("the file of the link has %q, %v", text, err)
		}
		about, err := os.Lstat(path)
		if text, failed := os.ReadFile(path); failed != nil || err != nil || string(text) != "secret" ||
			about.Mode() != 0o600 {
			t.Errorf("the file has %q, mode %v, %v, %v", text, about.Mode(), err, failed)
		}
		if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("theirs"), 0o666),
			os.Chmod(path, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := os.ReadDir(dir); len(files) != 2 || err != nil {
		t.Errorf("%v remain, %v", files, err)
	}
}

// A device is not replaced by a file.
func TestWriteToDevice(t *testing.T) {
	link := filepath.Join(t.TempDir(), "null")
	if err := os.Symlink(os.DevNull, link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, []byte("secret")); !errors.Is(err, errNotRegular) {
		t.Errorf("got %v", err)
	}
	if about, err := os.Lstat(link); err != nil || about.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", about, err)
	}
}
