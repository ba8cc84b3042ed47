package clients

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/keepwatch/keepwatch/test/peer"
)

// maxLine bounds a line.
const maxLine = 1 << 20

// Process is a running program.
type Process struct {
	*peer.Process
	// Log is the file with the program's stderr.
	Log string

	lines   *os.File
	reading sync.WaitGroup

	mu  sync.Mutex
	err error
}

// Start starts a program that follows a namespace, with dir as its home. It calls line for each line, one
// after the other, until the program ends.
func Start(command []string, kubeconfig, namespace, dir string, line func(Line)) (*Process, error) {
	lines, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &Process{Log: filepath.Join(dir, "log"), lines: lines}
	p.Process, err = peer.Start(peer.Command{
		Path: command[0], Args: append(slices.Clone(command[1:]), kubeconfig, namespace),
		Env: []string{"HOME=" + dir, "PYTHONDONTWRITEBYTECODE=1"}, Stdout: out, Log: p.Log,
	})
	out.Close()
	if err != nil {
		lines.Close()
		return nil, err
	}
	p.reading.Go(func() {
		err := read(lines, line)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err = err
	})
	return p, nil
}

// read returns why no more lines follow.
func read(lines io.Reader, line func(Line)) error {
	scanner := bufio.NewScanner(lines)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		var l Line
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			return fmt.Errorf("%q: %w", scanner.Text(), err)
		}
		line(l)
	}
	return errors.Join(errors.New("the process has ended"), scanner.Err())
}

// Err returns why no more lines follow, or nil while the program runs.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Wait waits for a program that ends, until all its lines were delivered.
func (p *Process) Wait() {
	<-p.Done()
	p.reading.Wait()
}

// End kills the program, and waits until its last line was delivered.
func (p *Process) End() {
	p.Kill()
	p.reading.Wait()
	p.lines.Close()
}
