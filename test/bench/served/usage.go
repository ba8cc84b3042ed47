package served

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
	"github.com/keepwatch/keepwatch/test/peer"
)

// The measures that several rows have.
const (
	wallTime  = "time"
	serverCPU = "server CPU"
	growth    = "peak RSS growth"
	resident  = "RSS"
)

// usage is the cost of an operation on a server.
type usage struct {
	wall, cpu time.Duration
	growth    int64 // of its resident memory at the peak
}

func (u usage) figures() []Figure {
	return []Figure{seconds(wallTime, u.wall), seconds(serverCPU, u.cpu), size(growth, u.growth)}
}

// measure measures the process while do runs.
func measure(p *peer.Process, do func() error) (usage, error) {
	if err := p.ResetPeak(); err != nil {
		return usage{}, err
	}
	before, err := p.Memory()
	if err != nil {
		return usage{}, err
	}
	cpu, err := p.ProcessorTime()
	if err != nil {
		return usage{}, err
	}
	began := time.Now()
	failed := do()
	u := usage{wall: time.Since(began)}
	if failed != nil {
		return u, failed
	}
	after, err := p.ProcessorTime()
	if err != nil {
		return u, err
	}
	peak, err := p.Memory()
	u.cpu, u.growth = after-cpu, peak.Peak-before.Resident
	return u, err
}

const (
	// longRun is the time from which on an operation is measured only once.
	longRun = 10 * time.Second
	// shortRun is how long a run lasts at least: processor time is counted in
	// hundredths of a second.
	shortRun = time.Second
)

// repeat measures do, which has run before, several times for a median, and in each run as
// often as a figure needs. The result is for one call, except the growth, which is the
// largest.
func (s *subject) repeat(do func() error) (usage, error) {
	began := time.Now()
	if err := do(); err != nil {
		return usage{}, err
	}
	times := max(1, int(shortRun/max(time.Since(began), time.Millisecond)))
	var walls, cpus []time.Duration
	var growth int64
	for range s.runs {
		u, err := measure(s.process(), func() error {
			for range times {
				if err := do(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return usage{}, err
		}
		walls, cpus = append(walls, u.wall/time.Duration(times)), append(cpus, u.cpu/time.Duration(times))
		growth = max(growth, u.growth)
		if u.wall > longRun {
			break
		}
	}
	return usage{wall: figures.Median(walls), cpu: figures.Median(cpus), growth: growth}, nil
}

// available is how much memory the machine can still give.
func available() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if field, value, _ := strings.Cut(line, ":"); field == "MemAvailable" {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no MemAvailable")
}

// settle waits until a server has finished its background work, such as collecting garbage
// and releasing memory.
func settle(ctx context.Context) error { return pause(ctx, 5*time.Second) }

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
