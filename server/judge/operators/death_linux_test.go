package operators

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	waiting "github.com/keepwatch/keepwatch/internal/testonly/await" // await is an action here
)

// asJudge makes the test's program start an operator in a folder, and wait.
const asJudge = "KEEPWATCH_JUDGE"

// TestDiesWithJudge checks that an operator ends with its judge, also if that is killed.
func TestDiesWithJudge(t *testing.T) {
	if folder := os.Getenv(asJudge); folder != "" {
		w := &world{folder: folder, operator: &rest.Config{}, traffic: newTraffic(user)}
		sleeper := Operator{Command: []string{"sh", "-c", "echo $$; exec sleep 3600"}, Output: os.Stdout}
		if _, err := sleeper.start(w); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	judge := exec.Command(os.Args[0], "-test.run=^TestDiesWithJudge$")
	judge.Env = append(os.Environ(), asJudge+"="+t.TempDir())
	out, err := judge.StdoutPipe()
	if err == nil {
		err = judge.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = judge.Wait() }() // it was killed
	defer func() { _ = judge.Process.Kill() }()
	lines := bufio.NewReader(out)
	line, _ := lines.ReadString('\n')
	_, pid, _ := strings.Cut(line, "| ")
	operator, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if err := judge.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1) // when no process has the pipe
	go func() {
		_, err := io.Copy(io.Discard, lines)
		ended <- err
	}()
	defer func() {
		if t.Failed() {
			_ = syscall.Kill(operator, syscall.SIGKILL)
		}
	}()
	if err := waiting.Receive(t, "the operator's end", ended); err != nil {
		t.Error(err)
	}
}
