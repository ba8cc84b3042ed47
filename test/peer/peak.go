package peer

import "syscall"

// PeakRSS waits for the process to end and returns its peak resident memory, in bytes. The
// kernel includes the memory of this process at the fork (getrusage(2)).
func (p *Process) PeakRSS() int64 {
	<-p.Done()
	usage, ok := p.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return usage.Maxrss << 10 // kilobytes, on Linux
}
