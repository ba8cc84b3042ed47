package pgtest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// owner returns the attributes of the server's processes, and gives dir to their user: Postgres
// refuses to run as root.
func owner(dir string) (*syscall.SysProcAttr, error) {
	attributes := &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() != 0 {
		return attributes, nil
	}
	found, err := user.Lookup("postgres")
	if err != nil {
		if found, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.Atoi(found.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(found.Gid)
	if err != nil {
		return nil, err
	}
	attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attributes, os.Chown(dir, uid, gid)
}

// killGroup kills a process and all it has started, and waits for the end of the latter. Postgres' processes are in
// groups of their own, and serve a connection until they notice that their parent is gone. No other server can start
// before they have ended.
func killGroup(pid int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	for parent := strconv.Itoa(pid); isRunning(parent) && stateOf(parent) != "T"; {
		time.Sleep(time.Millisecond) // until it stops, it can start others
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	children := strings.Fields(string(text))
	for _, child := range children {
		if child, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	for _, child := range children {
		for isRunning(child) {
			time.Sleep(time.Millisecond)
		}
	}
}

// isRunning reports whether a process exists and has not ended. A zombie has.
func isRunning(pid string) bool {
	state := stateOf(pid)
	return state != "" && state != "Z" && state != "X"
}

// stateOf returns the letter of a process's state, or nothing if there is no process.
func stateOf(pid string) string {
	status, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	_, state, _ := strings.Cut(string(status), ") ") // behind the name in parentheses
	return state[:min(1, len(state))]
}
