package boltfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestRemnants creates files where a process was killed while it wrote the first pages of one.
func TestRemnants(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole")
	db, err := OrCreate(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	pages, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, 100, 4096, 8192, len(pages) - 1, len(pages)} {
		for name, remnant := range map[string][]byte{"cut": pages[:size], "zero": make([]byte, size),
			"noise": bytes.Repeat([]byte{'x'}, size)} {
			path := filepath.Join(t.TempDir(), "state.db")
			if err := os.WriteFile(path+".new", remnant, 0o600); err != nil {
				t.Fatal(err)
			}
			db, err := OrCreate(path)
			if err != nil {
				t.Errorf("%s, %d bytes: %v", name, size, err)
				continue
			}
			err = db.Update(func(tx *bolt.Tx) error {
				_, err := tx.CreateBucket([]byte("b"))
				return err
			})
			if err := errors.Join(err, db.Close()); err != nil {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			}
			if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s, %d bytes: a remnant is left: %v", name, size, err)
			}
		}
	}
}

// TestRemnantInUse checks that a file that another process is creating is no remnant.
func TestRemnantInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	other, err := bolt.Open(path+".new", 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := OrCreate(path); !InUse(err) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path + ".new"); err != nil {
		t.Error(err)
	}
}
