package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// index returns a stage as an image of several architectures.
func index(dockerfile []byte, context, stage string, archs []string, created time.Time) (v1.ImageIndex, error) {
	index := v1.ImageIndex(empty.Index)
	for _, arch := range archs {
		d, err := parseDockerfile(dockerfile, context, arch)
		if err != nil {
			return nil, err
		}
		c, err := d.evaluate(stage)
		if err != nil {
			return nil, err
		}
		image, err := c.image(arch, created)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: "linux", Architecture: arch},
		}})
	}
	return index, nil
}

func (c contents) image(arch string, created time.Time) (v1.Image, error) {
	text, err := layer(c.files, created)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: created}, Config: c.config, RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: created}}})
}

// layer returns a tar of the files and their folders, which are all root's.
func layer(files []file, created time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	header := func(h tar.Header) error {
		h.Format, h.ModTime = tar.FormatUSTAR, created
		return w.WriteHeader(&h)
	}
	for _, folder := range folders(files) {
		if err := header(tar.Header{Typeflag: tar.TypeDir, Name: folder, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		text, err := os.ReadFile(f.source)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		if err := header(tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.path, "/"), Mode: f.mode,
			Size: int64(len(text))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(text); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// folders returns the folders of files, each behind the one that has it.
func folders(files []file) []string {
	var all []string
	for _, f := range files {
		for dir := path.Dir(f.path); dir != "/"; dir = path.Dir(dir) {
			all = append(all, strings.TrimPrefix(dir, "/")+"/")
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
