package peer

import "syscall"

// ownGroup puts a process into a group of its own, and has the kernel kill it
// when the thread that started it ends.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
