package operators

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	waiting "github.com/keepwatch/keepwatch/internal/testonly/await" // await is an action here
)

// startGroup starts a script in a process group of its own, which is killed at the end of the test.
func startGroup(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		killGroup(cmd.Process)
		_ = cmd.Wait() // it was killed
	})
	return cmd
}

// onOneProcessor makes a process run on the first processor of those that this one may have.
func onOneProcessor(t *testing.T, pid int) {
	t.Helper()
	var set [128]byte
	call := func(number, pid uintptr) {
		t.Helper()
		if _, _, code := syscall.RawSyscall(number, pid, uintptr(len(set)), uintptr(unsafe.Pointer(&set))); code != 0 {
			t.Fatal(code)
		}
	}
	call(syscall.SYS_SCHED_GETAFFINITY, 0)
	for i, found := 0, false; i < len(set); i++ {
		if found {
			set[i] = 0
		}
		found = found || set[i] != 0
		set[i] &= -set[i] // the lowest one
	}
	call(syscall.SYS_SCHED_SETAFFINITY, uintptr(pid))
}

// TestHeld checks that an operator is held while it is stopped, or another one has its processor, and not while it
// sleeps; also if it is a child of the command.
func TestHeld(t *testing.T) {
	t.Parallel()
	wait := func(what string, h *held, is func(float64) bool) {
		t.Helper()
		part := 0.0
		waiting.True(t, what, func() bool {
			part = h.part()
			return is(part)
		}, func() string { return fmt.Sprint(part, " of the time") })
	}
	sleeper := startGroup(t, "sleep 3600 & wait")
	h := newHeld(sleeper.Process.Pid)
	wait("a sleeper that is not held", h, func(part float64) bool { return part < 0.5 })
	if err := sleeper.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wait("a stopped one", h, func(part float64) bool { return part == 1 })
	if err := sleeper.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wait("one that goes on", h, func(part float64) bool { return part < 0.5 })

	if _, ok := scheduleOf("/proc/self"); !ok {
		t.Skip("the kernel does not record how long a thread waits for a processor")
	}
	for range 2 {
		loop := startGroup(t, "while :; do :; done")
		onOneProcessor(t, loop.Process.Pid)
		h = newHeld(loop.Process.Pid)
	}
	wait("a loop whose processor is another one's", h, func(part float64) bool { return part > 0.3 && part < 1 })
}
