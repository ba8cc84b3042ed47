package etcd_test

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
)

const clusterSize = 3

// memberVariable names the environment variable that turns the test binary into
// a member of a cluster. Its value is the member's number.
const memberVariable = "KEEPWATCH_TEST_ETCD_MEMBER"

// peer is a member of a cluster in its own process: members in one process would share
// etcd's package variables, and could not be killed.
type peer struct {
	number  int
	dir     string // with its socket and data
	sockets string // with the members' peer sockets
	process *exec.Cmd
	stdin   io.Closer // the process ends when it is closed
}

// startCluster runs a cluster for the duration of the test.
func startCluster(t *testing.T) []*peer {
	t.Helper()
	sockets := shortDir(t)
	started := make(chan error, clusterSize)
	var peers []*peer
	for i := range clusterSize {
		p := &peer{number: i, dir: shortDir(t), sockets: sockets}
		peers = append(peers, p)
		go func() { started <- p.start() }()
	}
	t.Cleanup(func() {
		for _, p := range peers {
			p.kill()
		}
	})
	var failed error
	for range peers {
		if err := <-started; err != nil {
			failed = err
		}
	}
	if failed != nil {
		t.Fatal(failed)
	}
	return peers
}

// start starts the process and waits until the member has joined the others.
func (p *peer) start() error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(path, p.dir)
	cmd.Dir, cmd.Stderr = p.sockets, os.Stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", memberVariable, p.number))
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.process = cmd
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return fmt.Errorf("member %d did not start: %w", p.number, err)
	}
	return nil
}

// kill ends the process with SIGKILL, if it runs.
func (p *peer) kill() {
	if p.process == nil {
		return
	}
	_ = p.process.Process.Kill()
	_ = p.process.Wait()
	p.process = nil
}

func (p *peer) endpoints() []string { return []string{"unix://" + socketIn(p.dir)} }

// runPeer is the main function of a peer's process. It returns the exit code.
func runPeer(number, dir string) int {
	i, err := strconv.Atoi(number)
	if err != nil {
		panic(err)
	}
	m := newMember(dir)
	m.config = func(c *embed.Config) {
		c.Name = fmt.Sprint("m", i)
		c.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: fmt.Sprintf("m:%d", i)}}
		c.AdvertisePeerUrls = c.ListenPeerUrls
		c.InitialCluster = "m0=unix://m:0,m1=unix://m:1,m2=unix://m:2"
	}
	if err := m.start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	m.stop()
	return 0
}
