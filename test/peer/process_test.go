package peer

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// asOwner, in the environment, has the test binary start a process, print its
// id, and wait for its own end.
const asOwner = "PEER_TEST_OWNER_LOG"

func TestMain(m *testing.M) {
	if log := os.Getenv(asOwner); log != "" {
		p, err := Start(Command{Path: "/bin/sleep", Args: []string{"600"}, Log: log})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.PID())
		<-p.Done()
		return
	}
	os.Exit(await.Tests(m))
}

func startShell(t *testing.T, script string) (p *Process, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	p, err := Start(Command{Path: "/bin/sh", Args: []string{"-c", script}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p, log
}

// gone reports whether process id has ended, also if its parent has not waited for it.
func gone(id int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return errors.Is(syscall.Kill(id, 0), syscall.ESRCH)
	}
	return strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " Z ")
}

func TestStop(t *testing.T) {
	p, log := startShell(t, `trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
	await.True(t, "the trap is set", func() bool { return contains(log, "ready") })
	if err := p.Stop(time.Minute); err != nil || p.ExitCode() != 7 {
		t.Errorf("stopped with %v, exit code %d", err, p.ExitCode())
	}
	if err := p.Stop(time.Minute); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	p, log := startShell(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	await.True(t, "the trap is set", func() bool { return contains(log, "ready") })
	if err := p.Stop(10 * time.Millisecond); err == nil || !strings.Contains(err.Error(), log) {
		t.Errorf("got %v, want an error that names the log", err)
	}
	if code := p.ExitCode(); code != -1 {
		t.Errorf("exit code %d, want -1 for a signal", code)
	}
}

func TestKillEndsChildren(t *testing.T) {
	p, log := startShell(t, `sleep 600 & echo $! child; wait`)
	await.True(t, "the child runs", func() bool { return contains(log, "child") })
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	await.True(t, "the child ends", func() bool { return gone(child) })
}

func TestProcessEndsWithItsOwner(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux signals a process when its parent ends")
	}
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), asOwner+"="+filepath.Join(t.TempDir(), "log"))
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(line)
	}
	if gone(child) {
		t.Fatal("the process did not live")
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // returns that it was killed
	await.True(t, "the process ends", func() bool { return gone(child) })
}

func contains(file, text string) bool {
	content, err := os.ReadFile(file)
	return err == nil && strings.Contains(string(content), text)
}
