package peer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

const (
	// probeInterval is the interval of readiness probes while a program starts.
	probeInterval = 50 * time.Millisecond
	// portAttempts is how often a start is repeated with another port.
	portAttempts = 5
)

// portTaken matches the errors of programs that cannot listen on their port; the last one
// is keepwatch's.
var portTaken = regexp.MustCompile(`address already in use|cannot listen on 127\.0\.0\.1`)

// Service is a program that runs until the test stops it, and that can be started again
// with the same arguments, port and data. Its methods are safe for concurrent use, but
// only one at a time starts or ends the program.
type Service struct {
	name  string
	path  string
	args  []string
	log   string
	probe func(context.Context) error

	mu      sync.Mutex // locked while the program is started or ended
	process *Process
}

// Process is the program's process: the running one, or the last.
func (s *Service) Process() *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// Log is the file with all that the program wrote.
func (s *Service) Log() string { return s.log }

// Stop sends SIGTERM to the program and waits for its end. It returns an error if the
// program hangs and is killed.
func (s *Service) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.Stop(await.Deadline)
}

// Kill ends the program as a power failure of its own would, with SIGKILL.
func (s *Service) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process.Kill()
}

// Restart starts the program again and waits until it is ready. It kills one
// that still runs.
func (s *Service) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process.Kill()
	return s.start(ctx)
}

// launch is start for a new service, with an unused port.
func (s *Service) launch(ctx context.Context, configure func(port int)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for attempt := 1; ; attempt++ {
		port, err := localhost.FreePort()
		if err != nil {
			return err
		}
		configure(port)
		if err = s.start(ctx); err == nil {
			return nil
		}
		if attempt == portAttempts || !portTaken.MatchString(err.Error()) {
			return err
		}
	}
}

// start starts the program and waits until it is ready. If it isn't in time, or
// ends, the error has the end of its log.
func (s *Service) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, await.Deadline)
	defer cancel()
	process, err := Start(Command{Path: s.path, Args: s.args, Log: s.log})
	if err != nil {
		return fmt.Errorf("starting %s: %w", s.name, err)
	}
	s.process = process
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		if err = s.probe(ctx); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-process.Done():
			return fmt.Errorf("%s ended with exit code %d instead of getting ready\n%s", s.name, process.ExitCode(), s.tail())
		case <-ctx.Done():
			process.Kill()
			return fmt.Errorf("%s is not ready: %w\n%s", s.name, err, s.tail())
		}
	}
}

// tail is the end of the program's log, for people.
func (s *Service) tail() string {
	const size = 8 << 10
	f, err := os.Open(s.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > size {
		_, _ = f.Seek(-size, io.SeekEnd)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "--- end of %s ---\n", s.log)
	_, _ = io.Copy(&b, io.LimitReader(f, size))
	return b.String()
}
