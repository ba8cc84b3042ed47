package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// namedIndex is an image of several architectures, and its name with a tag.
type namedIndex struct {
	name  string
	index v1.ImageIndex
}

// writeArchive writes images as an OCI archive.
func writeArchive(out string, images []namedIndex, created time.Time) error {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	for _, image := range images {
		// containerd reads the first name; others the tag.
		names := layout.WithAnnotations(map[string]string{
			"io.containerd.image.name":          image.name,
			"org.opencontainers.image.ref.name": image.name[strings.LastIndexByte(image.name, ':')+1:],
		})
		if err := all.AppendIndex(image.index, names); err != nil {
			return err
		}
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(archive(file, os.DirFS(dir), created), file.Close())
}

// archive writes the files of a folder in the order of their names.
func archive(out io.Writer, dir fs.FS, created time.Time) error {
	w := tar.NewWriter(out)
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text, err := dir.Open(name)
		if err != nil {
			return err
		}
		defer text.Close()
		if err := w.WriteHeader(&tar.Header{Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: name, Mode: 0o644,
			Size: info.Size(), ModTime: created}); err != nil {
			return err
		}
		_, err = io.Copy(w, text)
		return err
	})
	return errors.Join(err, w.Close())
}
