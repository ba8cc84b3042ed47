//go:build unix

package operators

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup gives a command a process group of its own, so that ^C reaches the judge alone.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithJudge(cmd.SysProcAttr)
}

// killGroup kills a process and those that it has started.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
