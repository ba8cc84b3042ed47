package peer

import "syscall"

// PeakRSS waits for the process to end and returns the most memory, in bytes,
// that it had resident at a time. Where the process started it is counted too,
// so that it can't be less than what this process had then (getrusage(2)).
func (p *Process) PeakRSS() int64 {
	<-p.done
	usage, ok := p.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return usage.Maxrss << 10 // kilobytes, on Linux
}
