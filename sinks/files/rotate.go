package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Compression is the compression of closed files. The set is closed: None, Gzip, Zstd.
type Compression int

// The compressions.
const (
	None Compression = iota
	Gzip
	Zstd
)

var (
	compressionNames = [...]string{None: "none", Gzip: "gzip", Zstd: "zstd"}
	suffixes         = [...]string{Gzip: ".gz", Zstd: ".zst"}
)

// ParseCompression returns the compression of a name: none, gzip or zstd. The empty name is none.
func ParseCompression(name string) (Compression, error) {
	for c, known := range compressionNames {
		if name == known || name == "" {
			return Compression(c), nil
		}
	}
	return 0, fmt.Errorf("the compression must be none, gzip or zstd, not %q", name)
}

// writer returns the compressor of out.
func (c Compression) writer(out io.Writer) (io.WriteCloser, error) {
	if c == Gzip {
		return gzip.NewWriter(out), nil
	}
	return zstd.NewWriter(out, zstd.WithEncoderConcurrency(1))
}

// rotate closes the current file if it is large or old enough. One from a time that is yet to come has no age: the
// clock was ahead, and nobody knows for how long.
func (d *Directory) rotate(now time.Time) error {
	current := d.manifest.current()
	if current == nil {
		return nil
	}
	age := now.Sub(current.From)
	if current.Bytes < d.options.MaxSize && age >= 0 && age < d.options.MaxAge {
		return nil
	}
	err := d.out.Close() // it is synced
	d.out = nil
	if err != nil {
		return err
	}
	plain := *current
	current.Closed = true
	if d.options.Compression != None {
		if err := d.compress(current); err != nil {
			return err
		}
	}
	if err := errors.Join(d.manifest.forget(d.dir), d.manifest.write(d.dir)); err != nil {
		return err
	}
	if d.options.Compression != None {
		return os.Remove(filepath.Join(d.dir, plain.Name))
	}
	return nil
}

// compress writes the compressed file of f, which becomes f. A crash leaves a file that is not in the manifest.
func (d *Directory) compress(f *file) error {
	in, err := os.Open(filepath.Join(d.dir, f.Name))
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(filepath.Join(d.dir, f.Name+suffixes[d.options.Compression]),
		os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(d.copy(out, in), out.Sync()); err != nil {
		return errors.Join(err, out.Close())
	}
	info, err := out.Stat()
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	f.Name, f.Bytes = info.Name(), info.Size()
	return nil
}

func (d *Directory) copy(out io.Writer, in io.Reader) error {
	compressed, err := d.options.Compression.writer(out)
	if err != nil {
		return err
	}
	_, err = io.Copy(compressed, in)
	return errors.Join(err, compressed.Close())
}
