//go:build unix

package serving

import "syscall"

// descriptorLimit returns the limit of open files of this process. Go raises the soft limit to the
// hard one when a process starts.
func descriptorLimit() (uint64, bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return uint64(limit.Cur), true
}
