package child

import (
	"os/exec"
	"syscall"
)

func dieWithParent(cmd *exec.Cmd) {
	attributes := &syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		*attributes = *cmd.SysProcAttr
	}
	attributes.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = attributes
}
