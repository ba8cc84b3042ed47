package apiserver

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// image is what the repository's `make image` builds for this machine's architecture.
type image struct {
	blobs  fs.FS // of the unpacked archive
	layer  string
	Config struct {
		Env, Entrypoint []string
		User            string
	}
}

// descriptor refers to a blob.
type descriptor struct {
	Digest      string
	Annotations map[string]string
}

// buildImages returns the images by their tags' suffixes.
func buildImages(t *testing.T) map[string]image {
	t.Helper()
	build := exec.CommandContext(t.Context(), "make", "-C", "../../..", "--no-print-directory", "image",
		"ARCHS="+runtime.GOARCH, "IMAGE=localhost/test")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := t.TempDir()
	archive, err := os.Open("../../../bin/keepwatch-apiserver-image.tar")
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	unpack(t, archive, dir)
	blobs, images := os.DirFS(dir), map[string]image{}
	var index struct{ Manifests []descriptor }
	read(t, blobs, "index.json", &index)
	for _, named := range index.Manifests {
		var platforms struct{ Manifests []descriptor }
		read(t, blobs, named.path(), &platforms)
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		read(t, blobs, platforms.Manifests[0].path(), &manifest)
		i := image{blobs: blobs, layer: manifest.Layers[0].path()}
		read(t, blobs, manifest.Config.path(), &i)
		_, tag, _ := strings.Cut(named.Annotations["org.opencontainers.image.ref.name"], "-")
		images[tag] = i
	}
	return images
}

func (d descriptor) path() string { return "blobs/" + strings.ReplaceAll(d.Digest, ":", "/") }

func read(t *testing.T, files fs.FS, name string, into any) {
	t.Helper()
	text, err := fs.ReadFile(files, name)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// unpack writes the image's files into a folder.
func (i image) unpack(t *testing.T, dir string) {
	t.Helper()
	layer, err := i.blobs.Open(i.layer)
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	text, err := gzip.NewReader(layer)
	if err != nil {
		t.Fatal(err)
	}
	unpack(t, text, dir)
}

// unpack replaces files and keeps folders.
func unpack(t *testing.T, archive io.Reader, dir string) {
	t.Helper()
	for entries := tar.NewReader(archive); ; {
		header, err := entries.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(file, 0o755)
		} else {
			err = install(file, entries)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// install writes a program to a file. An earlier one may still run.
func install(file string, text io.Reader) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, text)
	return errors.Join(err, out.Close())
}
