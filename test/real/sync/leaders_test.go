package sync

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

// pair are two processes for one sink, of which a Lease elects one.
type pair struct {
	leader, standby *follower
}

// TestLeaders follows with two processes for each sink. The elected one is killed, frozen in the middle of its work,
// and cut off from the API server: the other one takes over, the first one can write nothing more, and nothing is lost
// or doubled.
func TestLeaders(t *testing.T) {
	s := newStorm(t, peer.Kubernetes(t), *seedFlag)
	s.history = followHistory(t, s)
	var pairs []*pair
	for _, sink := range sinks {
		if sink.name != "postgres" && sink.name != "kafka" && sink.name != "nats" {
			continue // what is in files has one process, and a cluster and a bucket of NATS are fenced as a stream is
		}
		if missing := sink.missing(); missing != "" {
			t.Run(sink.name, func(t *testing.T) { t.Skip(missing) })
			continue
		}
		pairs = append(pairs, s.followPair(sink.name, sink.follow(t)))
	}
	s.writeAll(func(ctx context.Context, c *load.Churn) error { return c.Create(ctx) })
	s.converge()
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
			if err := s.writing(func(ctx context.Context, c *load.Churn) error { return c.Run(ctx, 8) }); err != nil {
				t.Errorf("churn: %v", err)
				return
			}
		}
	})
	for _, fail := range []func(*follower){kill, freeze, cutOff} {
		for _, p := range pairs {
			fail(p.leader)
		}
		for _, p := range pairs {
			p.takeOver(t)
		}
	}
	stop()
	writing.Wait()
	s.followers = nil
	for _, p := range pairs {
		p.standby.process.Kill()
		s.followers = append(s.followers, p.leader)
	}
	s.miss()
	for _, f := range s.followers {
		f.calm()
		t.Run(f.name, f.judge)
	}
}

// followPair starts two processes for a sink.
func (s *storm) followPair(name string, first *follower) *pair {
	first.name = name
	first.flags = append(first.flags, "--leader-elect", "default/"+name)
	second := &follower{contents: first.contents, name: name, to: first.to, flags: first.flags}
	s.follow(first)
	first.waitLines(s.t, "elected", 1)
	s.follow(second)
	return &pair{first, second}
}

func kill(f *follower) { f.process.Kill() }

func freeze(f *follower) { _ = f.process.Signal(syscall.SIGSTOP) }

// cutOff lets the watches be: the process works on until it has not renewed its Lease in time.
func cutOff(f *follower) { f.cutOff.Store(true) }

// takeOver waits until the standby is elected and stores changes, ends the failure of the other one, which then ends by
// itself, and starts that one again as the standby.
func (p *pair) takeOver(t *testing.T) {
	t.Helper()
	first, second := p.leader, p.standby
	second.waitLines(t, "elected", 1)
	second.waitLines(t, "synced at", 1)
	first.cutOff.Store(false)
	if err := first.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-first.process.Done():
	case <-time.After(await.Deadline):
		t.Fatalf("%s: the process that lost its Lease does not end: %s", first.name, first.stderr())
	}
	if code := first.process.ExitCode(); code == 0 {
		t.Errorf("%s: the process that lost its Lease exits with 0: %s", first.name, first.stderr())
	}
	if err := os.Truncate(first.command.Log, 0); err != nil {
		t.Fatal(err)
	}
	first.launch(t)
	p.leader, p.standby = second, first
}

// waitLines waits until the process has printed so many lines with a text.
func (f *follower) waitLines(t *testing.T, text string, n int) {
	t.Helper()
	await.State(t, fmt.Sprintf("%s prints %q", f.name, text), func() (bool, string) {
		printed := f.stderr()
		return strings.Count(printed, fmt.Sprintf("keepwatch: %s", text)) >= n, printed
	})
}
