package follow

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
)

// errConsumerEnded ends a stream whose consumer has closed stdin. It is an end on request.
var errConsumerEnded = errors.New("the consumer has closed stdin")

// acknowledgments are the lines that a consumer has handled, of those that were printed: it writes a line to stdin for
// each. A nil value waits for none.
type acknowledgments struct {
	mu           sync.Mutex
	printed      int64
	acknowledged int64         // Invariant: acknowledged <= printed, or the stream has ended
	changed      chan struct{} // closed when acknowledged grows
}

// readAcknowledgments counts the lines of in until it ends, or until a line comes too many, and calls end with the
// reason. A read from stdin can't be canceled: the reading ends with the process.
func readAcknowledgments(in io.Reader, end func(error)) *acknowledgments {
	a := &acknowledgments{changed: make(chan struct{})}
	go func() {
		text := make([]byte, 4096)
		for {
			n, err := in.Read(text)
			if !a.add(int64(bytes.Count(text[:n], []byte{'\n'}))) {
				end(errors.New("stdin acknowledges more lines than were printed: write one line for each"))
				return
			}
			if err != nil {
				end(errConsumerEnded)
				return
			}
		}
	}()
	return a
}

// add adds acknowledged lines. It returns false if these are more than were printed.
func (a *acknowledgments) add(n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.acknowledged += n
	close(a.changed)
	a.changed = make(chan struct{})
	return a.acknowledged <= a.printed
}

// wait waits until the consumer has acknowledged every line that was printed. It returns the cause of ctx when that is
// done before.
func (a *acknowledgments) wait(ctx context.Context) error {
	for a != nil {
		a.mu.Lock()
		open, changed := a.printed-a.acknowledged, a.changed
		a.mu.Unlock()
		if open <= 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// counting returns out, whose lines are to be acknowledged.
func (a *acknowledgments) counting(out io.Writer) io.Writer {
	if a == nil {
		return out
	}
	return &countedLines{out, a}
}

// countedLines counts the lines that it writes. A line counts before it is written: the consumer may acknowledge it
// before the write returns.
type countedLines struct {
	io.Writer
	acknowledgments *acknowledgments
}

func (c *countedLines) Write(text []byte) (int, error) {
	c.acknowledgments.mu.Lock()
	c.acknowledgments.printed += int64(bytes.Count(text, []byte{'\n'}))
	c.acknowledgments.mu.Unlock()
	return c.Writer.Write(text)
}

// outputFile is an output that is a file. The cursor is on the disk as soon as it moves, so the lines before it must
// be, too. A nil value is no file.
type outputFile os.File

// outputFileOf returns the file of an output, if a state follows it.
func outputFileOf(stdout io.Writer, stateDir string) *outputFile {
	file, ok := stdout.(*os.File)
	if !ok || stateDir == "" {
		return nil
	}
	if about, err := file.Stat(); err != nil || !about.Mode().IsRegular() {
		return nil
	}
	return (*outputFile)(file)
}

func (f *outputFile) sync() error {
	if f == nil {
		return nil
	}
	return (*os.File)(f).Sync()
}
