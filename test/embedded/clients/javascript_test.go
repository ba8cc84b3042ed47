package clients

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

// javaScript is the informer of @kubernetes/client-node.
type javaScript struct {
	ask     *os.File
	answers *bufio.Reader
	process *peer.Process
}

// newJavaScript starts the client. The error names the program that this machine does not
// have.
func newJavaScript(t *testing.T, kubeconfig string) (*javaScript, error) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, errors.New("it needs Node.js 20 or later on the PATH")
	}
	const script = "../../matrix/clients/javascript"
	if _, err := os.Stat(filepath.Join(script, "node_modules")); err != nil {
		return nil, errors.New("it needs its packages; run make javascript")
	}
	in, ask, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	process, err := peer.Start(peer.Command{
		Path: node, Args: []string{filepath.Join(script, "informer.mjs"), kubeconfig, namespace},
		Stdin: in, Stdout: out, Log: log,
	})
	in.Close()
	out.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Kill()
		ask.Close()
		answers.Close()
		if text, err := os.ReadFile(log); t.Failed() && err == nil {
			t.Logf("the JavaScript client wrote\n%s", text)
		}
	})
	return &javaScript{ask: ask, answers: bufio.NewReader(answers), process: process}, nil
}

func (j *javaScript) states() ([]state, error) {
	if _, err := fmt.Fprintln(j.ask); err != nil {
		return nil, err
	}
	line, err := j.answers.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the JavaScript client ended: %w", err)
	}
	var answer struct{ Held, Folded state }
	err = json.Unmarshal(line, &answer)
	return []state{answer.Held, answer.Folded}, err
}
