package peer

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is a process's resident memory and its peak, in bytes.
type Memory struct {
	Resident  int64 // now
	Anonymous int64 // of that, without pages of files: those of its program are shared with other processes
	Peak      int64 // the most resident memory since the start or the last ResetPeak
}

// Memory reads /proc, so it works on Linux, while the process runs.
func (p *Process) Memory() (Memory, error) { return MemoryOf(p.PID()) }

// MemoryOf returns the memory of any process, as [Process.Memory] does.
func MemoryOf(pid int) (Memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	for line := range strings.Lines(string(text)) {
		field, value, _ := strings.Cut(line, ":")
		var to *int64
		switch field {
		case "VmRSS":
			to = &m.Resident
		case "RssAnon":
			to = &m.Anonymous
		case "VmHWM":
			to = &m.Peak
		default:
			continue
		}
		number, ok := strings.CutSuffix(strings.TrimSpace(value), " kB")
		kib, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil {
			return Memory{}, fmt.Errorf("unexpected line in /proc/%d/status: %q", pid, line)
		}
		*to = kib << 10
	}
	if m.Resident == 0 || m.Peak == 0 {
		return Memory{}, fmt.Errorf("process %d has ended", pid) // a zombie has no memory
	}
	return m, nil
}

// ResetPeak sets Peak to the current resident memory.
func (p *Process) ResetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID()), []byte("5"), 0)
}
