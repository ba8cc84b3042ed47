package files

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/keepwatch/keepwatch/internal/durable"
	"github.com/keepwatch/keepwatch/internal/filelock"
	"github.com/keepwatch/keepwatch/stream/shape"
	"github.com/keepwatch/keepwatch/stream/sink"
)

var _ sink.Receiver = (*Directory)(nil)

// Options configure the files. The zero value is ready for use.
type Options struct {
	Shape       shape.Shape
	Compression Compression // of closed files
	// MaxSize is the size in bytes, uncompressed, at which a file is closed; it may be exceeded by one batch. Zero means
	// DefaultMaxSize.
	MaxSize int64
	// MaxAge is the age at which a file is closed by the next batch. Zero means DefaultMaxAge.
	MaxAge time.Duration
}

// The defaults of Options.
const (
	DefaultMaxSize = 256 << 20
	DefaultMaxAge  = time.Hour
)

// Directory writes files into a directory. It is a [sink.Receiver].
type Directory struct {
	dir     string
	options Options

	lock     io.Closer
	streams  []sink.Stream
	manifest *manifest
	out      *os.File // the current file, nil if there is none
	buffer   *bufio.Writer
	line     []byte
}

// New returns the receiver of the files in dir. It opens nothing.
func New(dir string, options Options) *Directory {
	if options.MaxSize == 0 {
		options.MaxSize = DefaultMaxSize
	}
	if options.MaxAge == 0 {
		options.MaxAge = DefaultMaxAge
	}
	return &Directory{dir: dir, options: options}
}

// String returns "files:" and the absolute path.
func (d *Directory) String() string {
	dir, err := filepath.Abs(d.dir)
	if err != nil {
		dir = d.dir
	}
	return "files:" + dir
}

// Open opens the directory, or creates it, and removes what a crash has left unfinished. It returns an error for a
// directory that another process writes to, and for files that are not what was delivered. See [sink.Receiver].
func (d *Directory) Open(_ context.Context, streams []sink.Stream, delivered sink.Delivered) error {
	if d.lock != nil {
		return errors.New("the directory is open")
	}
	d.streams = streams
	if err := d.open(delivered); err != nil {
		return errors.Join(d.failure(err), d.Close())
	}
	return nil
}

func (d *Directory) open(delivered sink.Delivered) (err error) {
	if err := durable.MkdirAll(d.dir); err != nil {
		return err
	}
	d.lock, err = filelock.TryLock(filepath.Join(d.dir, "lock"))
	switch {
	case errors.Is(err, filelock.ErrLocked):
		return fmt.Errorf("directory %s is in use by another keepwatch sync", d.dir)
	case err != nil:
		return err
	}
	found, err := d.dataFiles()
	if err != nil {
		return err
	}
	d.manifest, err = readManifest(d.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(found) == 0:
		d.manifest = &manifest{Format: format, State: delivered.State}
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("directory %s has %s and no %s: begin anew in another directory", d.dir, found[0], manifestName)
	case err != nil:
		return err
	}
	if err := d.manifest.check(d.dir, d.streams, delivered); err != nil {
		return err
	}
	if err := d.clean(found); err != nil {
		return err
	}
	return errors.Join(d.manifest.write(d.dir), d.resume())
}

// dataFile is the name of a file, and what a crash may leave of one.
var dataFile = regexp.MustCompile(`^([0-9]{10})\.ndjson(\.gz|\.zst)?(\.new)?$`)

// dataFiles returns the names of the files in the directory, in order.
func (d *Directory) dataFiles() (names []string, err error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if dataFile.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// clean deletes the files that are not in the manifest: those of a batch that was not complete, and of an unfinished
// compression.
func (d *Directory) clean(found []string) error {
	for _, name := range found {
		if d.manifest.has(name) {
			continue
		}
		if err := os.Remove(filepath.Join(d.dir, name)); err != nil {
			return err
		}
	}
	return d.manifest.forget(d.dir)
}

// resume opens the current file, and cuts off what is behind its complete lines.
func (d *Directory) resume() (err error) {
	d.buffer = bufio.NewWriterSize(nil, bufferSize)
	current := d.manifest.current()
	if current == nil {
		return nil
	}
	if d.out, err = os.OpenFile(filepath.Join(d.dir, current.Name), os.O_WRONLY, 0); err != nil {
		return err
	}
	info, err := d.out.Stat()
	switch {
	case err != nil:
		return err
	case info.Size() < current.Bytes:
		return fmt.Errorf(
			"file %s has %d bytes, and %d were written: begin anew in another directory with another state directory",
			d.out.Name(), info.Size(), current.Bytes)
	}
	if err := d.out.Truncate(current.Bytes); err != nil {
		return err
	}
	d.buffer.Reset(d.out)
	_, err = d.out.Seek(current.Bytes, io.SeekStart)
	return err
}

const bufferSize = 256 << 10

// Write appends the lines of a batch, and replaces the manifest. See [sink.Receiver].
func (d *Directory) Write(_ context.Context, batch sink.Batch) error {
	if err := d.write(batch); err != nil {
		return d.failure(err)
	}
	return nil
}

func (d *Directory) write(batch sink.Batch) error {
	if err := d.rotate(batch.Time); err != nil {
		return err
	}
	for _, p := range batch.Pieces {
		if len(p.Messages) > 0 {
			if err := d.create(batch.Time); err != nil {
				return err
			}
		}
		if err := d.append(p, batch.Time); err != nil {
			return fmt.Errorf("%s: %w", d.streams[p.Stream].ID.Resource, err)
		}
		d.manifest.stream(d.streams[p.Stream].ID).Progress = p.After
	}
	if current := d.manifest.current(); current != nil {
		if err := errors.Join(d.buffer.Flush(), d.out.Sync(), d.checkFile(current.Name)); err != nil {
			return err
		}
		current.To = batch.Time
	}
	return d.manifest.write(d.dir)
}

// checkFile returns an error if the current file was deleted or replaced. The operating system would still accept
// writes to it.
func (d *Directory) checkFile(name string) error {
	path := filepath.Join(d.dir, name)
	written, err := d.out.Stat()
	if err != nil {
		return err
	}
	if found, err := os.Stat(path); err != nil || !os.SameFile(found, written) {
		return fmt.Errorf(
			"file %s was deleted or replaced while it was in use: its lines are lost; begin anew in another directory with another state directory", path)
	}
	return nil
}

// create creates the current file, unless there is one. Its name is durable with the manifest's.
func (d *Directory) create(now time.Time) (err error) {
	if d.out != nil {
		return nil
	}
	d.manifest.Last++
	name := fmt.Sprintf("%010d.ndjson", d.manifest.Last)
	if d.out, err = os.OpenFile(filepath.Join(d.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return err
	}
	d.buffer.Reset(d.out)
	d.manifest.Files = append(d.manifest.Files, file{Name: name, From: now, To: now})
	return nil
}

// append writes the lines of a piece.
func (d *Directory) append(p sink.Piece, now time.Time) (err error) {
	origin := shape.Origin{ID: d.streams[p.Stream].ID, Epoch: p.After.Epoch, Snapshot: !p.Before.Started(), Time: now}
	current := d.manifest.current()
	for _, m := range p.Messages {
		if d.line, err = d.options.Shape.Append(d.line[:0], origin, m); err != nil {
			return err
		}
		d.line = append(d.line, '\n')
		if _, err := d.buffer.Write(d.line); err != nil {
			return err
		}
		current.Bytes += int64(len(d.line))
		current.Lines++
	}
	return nil
}

// Close closes the current file, which the next Open continues.
func (d *Directory) Close() error {
	var errs []error
	if d.out != nil {
		errs = append(errs, d.out.Close())
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	d.out, d.lock, d.manifest = nil, nil, nil
	return errors.Join(errs...)
}
