package operators

import "syscall"

// dieWithJudge makes the kernel kill a process when the thread ends that has started it: at the latest when the judge
// was killed. What the process has started is not killed by this.
func dieWithJudge(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
