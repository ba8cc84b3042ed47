package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var archs = []string{"amd64", "arm64"}

// folder is a context: the repository's Dockerfile, and what make would have built.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"Dockerfile": string(text)}
	for _, arch := range archs {
		for _, program := range []string{"keepwatch", "keepwatch-apiserver", "kube-log-runner"} {
			files[filepath.Join("bin", "linux-"+arch, program)] = program + " for " + arch
		}
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// build returns the archive of all stages.
func build(t *testing.T, dir string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image.tar")
	if err := run(dir, archs, out, []string{"nonroot=localhost/a:v1", "root=localhost/a:v1-root",
		"keepwatch=localhost/k:v1"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The bytes depend on the files' contents only, not on their times, modes and folder.
func TestArchiveIsReproducible(t *testing.T) {
	first, dir := build(t, folder(t)), folder(t)
	for _, arch := range archs {
		file := filepath.Join(dir, "bin", "linux-"+arch, "kube-log-runner")
		if err := errors.Join(os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)), os.Chmod(file, 0o777)); err != nil {
			t.Fatal(err)
		}
	}
	if second := build(t, dir); !bytes.Equal(first, second) {
		t.Error("two builds of the same files differ")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	if later := build(t, dir); bytes.Equal(first, later) {
		t.Error("SOURCE_DATE_EPOCH has no effect")
	}
}

// The images have their programs in the PATH and an entry point, and their user is as the stage says.
func TestStages(t *testing.T) {
	apiserver := map[string]string{"usr/local/bin/kube-apiserver": "keepwatch-apiserver", "go-runner": "kube-log-runner"}
	for name, want := range map[string]struct {
		user, entry string
		files       map[string]string
	}{
		"localhost/a:v1":      {"65532:65532", "/go-runner", apiserver},
		"localhost/a:v1-root": {"", "/go-runner", apiserver},
		"localhost/k:v1": {"65532:65532", "/usr/local/bin/keepwatch",
			map[string]string{"usr/local/bin/keepwatch": "keepwatch"}},
	} {
		for _, arch := range archs {
			image := read(t, build(t, folder(t)), name, arch)
			config, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			c := config.Config
			if c.User != want.user || !slices.Equal(c.Entrypoint, []string{want.entry}) ||
				!slices.Contains(strings.Split(strings.TrimPrefix(c.Env[0], "PATH="), ":"), "/usr/local/bin") {
				t.Errorf("%s for %s has the configuration %+v", name, arch, c)
			}
			if config.Architecture != arch || config.OS != "linux" || !config.Created.Equal(time.Unix(0, 0)) {
				t.Errorf("%s: %s/%s, created %v", name, config.OS, config.Architecture, config.Created)
			}
			expected := map[string]string{"usr": "", "usr/local": "", "usr/local/bin": ""}
			for path, program := range want.files {
				expected[path] = program + " for " + arch
			}
			if got := files(t, image); !maps.Equal(got, expected) {
				t.Errorf("%s for %s has %q, want %q", name, arch, got, expected)
			}
		}
	}
}

// read returns an image of an archive, after a check of all its digests and sizes.
func read(t *testing.T, archive []byte, name, arch string) v1.Image {
	t.Helper()
	dir := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		file := filepath.Join(dir, header.Name)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(all); err != nil {
		t.Fatal(err)
	}
	names, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, named := range names.Manifests {
		if named.Annotations["io.containerd.image.name"] != name {
			continue
		}
		index, err := all.ImageIndex(named.Digest)
		if err != nil {
			t.Fatal(err)
		}
		platforms, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range platforms.Manifests {
			if p.Platform.Architecture == arch {
				image, err := index.Image(p.Digest)
				if err != nil {
					t.Fatal(err)
				}
				return image
			}
		}
	}
	t.Fatalf("the archive has no %s for %s", name, arch)
	return nil
}

func files(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	all, r := map[string]string{}, mutate.Extract(image)
	defer r.Close()
	for entries := tar.NewReader(r); ; {
		header, err := entries.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.Mode != 0o755 || !header.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s: %d:%d, mode %o, %v", header.Name, header.Uid, header.Gid, header.Mode, header.ModTime)
		}
		text, err := io.ReadAll(entries)
		if err != nil {
			t.Fatal(err)
		}
		all[header.Name] = string(text)
	}
}

// What this command cannot do as docker build does it is an error.
func TestUnsupportedInstructions(t *testing.T) {
	for text, want := range map[string]string{
		"RUN make":              "RUN",
		"COPY . /":              "another stage",
		"ENV A=$B":              "TARGETARCH",
		"ENTRYPOINT go":         "no shell",
		"WORKDIR /tmp":          "WORKDIR",
		"COPY --from=b /a /a":   "chmod",
		"ADD https://a.test /a": "ADD",
		"COPY --from=b --chmod=755 /elsewhere/a /a":         "not below /src",
		"COPY --from=b --chmod=755 /src/missing /a":         "no such file",
		"COPY --from=b --chmod=755 --chown=1 /src/a /a":     "another stage",
		"COPY --from=elsewhere --chmod=755 /src/missing /a": "another stage",
	} {
		dockerfile := "FROM golang AS b\nWORKDIR /src\nFROM scratch AS a\nARG TARGETARCH\n" + text + "\n"
		if _, err := index([]byte(dockerfile), t.TempDir(), "a", archs, time.Unix(0, 0)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
	if _, err := index([]byte("FROM golang AS a"), "", "a", archs, time.Unix(0, 0)); err == nil ||
		!strings.Contains(err.Error(), `no stage "golang"`) {
		t.Errorf("an image that must be pulled: %v", err)
	}
}
