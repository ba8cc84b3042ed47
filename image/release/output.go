package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// output is the folder of a release. It has another name until it is complete.
type output struct {
	dir, final string
	digests    map[string]string // SHA-256 of each file, in hexadecimal
}

func newOutput(final string) (*output, error) {
	parent := filepath.Dir(filepath.Clean(final))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, ".release-")
	if err != nil {
		return nil, err
	}
	return &output{dir: dir, final: filepath.Clean(final), digests: map[string]string{}}, os.Chmod(dir, 0o755)
}

// write adds a file.
func (o *output) write(name string, text func(io.Writer) error) error {
	file, err := os.Create(filepath.Join(o.dir, name))
	if err != nil {
		return err
	}
	digest := sha256.New()
	if err := errors.Join(text(io.MultiWriter(file, digest)), file.Chmod(0o644), file.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	o.digests[name] = hex.EncodeToString(digest.Sum(nil))
	return nil
}

// writeText adds a file whose text is known.
func (o *output) writeText(name string, text []byte) error {
	return o.write(name, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// names returns the names of the files written so far, sorted.
func (o *output) names() []string { return slices.Sorted(maps.Keys(o.digests)) }

// publish gives the folder its name, and removes one of that name.
func (o *output) publish() error {
	if err := os.RemoveAll(o.final); err != nil {
		return err
	}
	return os.Rename(o.dir, o.final)
}

// discard removes what is not published.
func (o *output) discard() { _ = os.RemoveAll(o.dir) }

const sumsName = "SHA256SUMS"

// sums writes the checksums of all files written so far, in the format of sha256sum.
func (r *release) sums() error {
	var text []byte
	for _, name := range r.out.names() {
		text = fmt.Appendf(text, "%s  %s\n", r.out.digests[name], name)
	}
	r.sumsText = text
	return r.out.writeText(sumsName, text)
}
