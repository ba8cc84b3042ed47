package clients

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/test/matrix/clients"
	"github.com/keepwatch/keepwatch/test/peer"
)

const (
	// starting bounds the start of all clients: some are slow virtual machines, and all
	// stories start them at the same time.
	starting = 3 * time.Minute
	// rightAgain bounds how long a client may differ from the server once it answers.
	rightAgain = time.Minute
	outage     = 20 * time.Second
)

// followed are the clients of the stories.
var followed = []string{
	"client-go informer", "python Watch", "python SharedInformer", "kopf", "@kubernetes/client-node",
	"fabric8 4.2.0", "fabric8 4.13.3", "fabric8 7.9.0",
}

// stories are the faults of a server, and of the network to its clients.
var stories = map[string]struct {
	flags []string
	story func(*stage)
	// relists is true if the history that a client needs has expired, so that it lists again.
	relists bool
	// gap is true if the history before the clients' return has expired: they receive the
	// difference, without objects that were created and deleted meanwhile.
	gap bool
	// resumed is the server's answer to watches that resume, by its metric.
	resumed string
}{
	"three kills": {resumed: "exact", story: func(s *stage) {
		stop := s.writing()
		for range 3 {
			s.waitForAnswers(50)
			s.kill()
			s.restart()
		}
		s.waitForAnswers(50)
		stop()
	}},
	"idle, then a restart": {resumed: "exact", story: func(s *stage) {
		s.must(s.writer.elsewhere(s.Context(), 300))
		s.kill()
		s.restart()
		s.agree()
		s.must(s.writer.write(s.Context(), 20))
	}},
	"20 seconds of outage": {resumed: "exact", story: func(s *stage) {
		stop := s.writing()
		s.waitForAnswers(20)
		s.disconnected(func() {
			select {
			case <-time.After(outage):
			case <-s.Context().Done():
			}
		})
		s.waitForAnswers(20)
		stop()
	}},
	"an older copy of the data": {relists: true, resumed: "expired", story: func(s *stage) {
		s.must(s.writer.write(s.Context(), 20)) // client-go lists again where a watch without an event ends within a second
		s.agree()
		s.kill()
		backup := filepath.Join(s.TempDir(), "backup")
		s.must(removeSockets(s.server.Data()))
		s.must(os.CopyFS(backup, os.DirFS(s.server.Data())))
		s.restart()
		s.must(s.writer.write(s.Context(), 200))
		s.agree()
		s.kill()
		s.must(os.RemoveAll(s.server.Data()))
		s.must(os.CopyFS(s.server.Data(), os.DirFS(backup)))
		s.restart()
		s.agree()
		s.must(s.writer.write(s.Context(), 20))
	}},
	"1 KiB of history": {flags: []string{"--watch-history", "1Ki,1s"}, gap: true, resumed: "difference",
		story: func(s *stage) {
			s.must(s.writer.write(s.Context(), 20)) // as above
			s.agree()
			s.disconnected(func() { s.must(s.writer.write(s.Context(), 200)) })
		}},
}

// stage is a server, its clients, and the writer.
type stage struct {
	*testing.T
	server    *peer.Server
	writer    *writer
	followers []*follower
}

// TestStories runs all clients of this machine through the faults of servers. Each client
// ends with the server's state and has received every deletion, lists again only if the
// history has expired, sends at most about one request a second, and is correct again
// within a minute.
func TestStories(t *testing.T) {
	commands, lacking := map[string][]string{}, map[string][]string{}
	for _, name := range followed {
		p, err := clients.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		command, err := p.Command()
		if err != nil {
			lacking[err.Error()] = append(lacking[err.Error()], name)
			continue
		}
		commands[name] = command
	}
	if len(lacking) > 0 {
		t.Run("other languages", func(t *testing.T) { t.Skip(skipped(lacking)) })
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, commands, story.flags)
			s.agree()
			story.story(s)
			s.agree()
			for _, f := range s.followers {
				s.judge(f, story.relists, story.gap)
			}
			s.resumed(story.resumed)
		})
	}
}

func newStage(t *testing.T, commands map[string][]string, flags []string) *stage {
	t.Helper()
	s := &stage{T: t, server: peer.Serve(t, flags...)}
	s.writer = newWriter(t, s.server.Config(), rand.Uint64())
	s.must(s.writer.prepare(t.Context()))
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		f := newFollower(t, s.server, name)
		f.run(t, commands[name])
		s.followers = append(s.followers, f)
	}
	s.agreeWithin(starting)
	s.writer.forget()
	for _, f := range s.followers {
		lists, _ := f.requests()
		f.started = len(lists)
	}
	return s
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// writing writes in the background until it is stopped.
func (s *stage) writing() (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	var running sync.WaitGroup
	running.Go(func() { s.writer.writeUntilDone(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	s.Cleanup(stop)
	return stop
}

// answers waits for a number of writes to be answered.
func (s *stage) waitForAnswers(n int) {
	s.Helper()
	until := s.writer.answered() + n
	s.within(starting, func() string {
		if is := s.writer.answered(); is < until {
			return fmt.Sprintf("%d writes of %d were answered", is, until)
		}
		return ""
	})
}

// disconnected separates all clients from the server while happens runs.
func (s *stage) disconnected(happens func()) {
	s.Helper()
	s.down()
	happens()
	s.up()
}

func (s *stage) down() {
	s.Helper()
	for _, f := range s.followers {
		s.must(f.proxy.Down())
	}
}

func (s *stage) up() {
	s.Helper()
	for _, f := range s.followers {
		s.must(f.proxy.Up())
	}
}

// kill ends the server with SIGKILL. Its clients see their connections reset and new ones
// refused.
func (s *stage) kill() {
	s.Helper()
	s.down()
	s.server.Kill()
}

// restart starts the server again. Clients reach it as soon as it listens.
func (s *stage) restart() {
	s.Helper()
	address := strings.TrimPrefix(s.server.Config().Host, "https://") // which a restart sets
	restarted := make(chan error, 1)
	go func() { restarted <- s.server.Restart(s.Context()) }()
	s.within(starting, func() string {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err.Error()
		}
		c.Close()
		return ""
	})
	s.up()
	s.must(<-restarted)
}

// agree waits until the fold of each client's events equals the server's state.
func (s *stage) agree() {
	s.Helper()
	s.agreeWithin(rightAgain)
}

func (s *stage) agreeWithin(bound time.Duration) {
	s.Helper()
	want, err := s.writer.state(s.Context())
	s.must(err)
	began := time.Now()
	waiting := slices.Clone(s.followers)
	s.within(bound, func() string {
		var differ []string
		waiting = slices.DeleteFunc(waiting, func(f *follower) bool {
			got, err := f.state()
			if err != nil {
				s.Fatalf("%s: %v", f.name, err)
			}
			difference := f.difference(got, f.expected(want))
			if difference == "" {
				s.Logf("%s agrees after %.1f s", f.name, time.Since(began).Seconds())
				return true
			}
			differ = append(differ, f.name+": "+difference)
			return false
		})
		return strings.Join(differ, "\n")
	})
}

// within polls until nothing is wrong any more.
func (s *stage) within(bound time.Duration, wrong func() string) {
	s.Helper()
	end := time.After(bound)
	for text := wrong(); text != ""; text = wrong() {
		select {
		case <-time.After(pollInterval):
		case <-end:
			s.Fatalf("still after %v:\n%s", bound, text)
		}
	}
}

// difference describes the difference between a client's fold and the server's state.
func (f *follower) difference(got, want state) string {
	var parts []string
	for name, is := range want {
		if got[name] != is {
			parts = append(parts, fmt.Sprintf("%s is %s, the server has %s", name, got[name], is))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok && !f.startsEmpty() {
			parts = append(parts, name+" is deleted")
		}
	}
	slices.Sort(parts)
	return strings.Join(parts[:min(3, len(parts))], ", ")
}

// startsEmpty reports whether the client has listed again and does not report objects that
// the list does not have any more. kopf passes each object of a list on, and stores none
// to compare.
func (f *follower) startsEmpty() bool {
	lists, _ := f.requests()
	return f.name == "kopf" && len(lists) > f.started
}

// resumed checks that the server has resumed watches in one way only.
func (s *stage) resumed(want string) {
	s.Helper()
	metrics, err := s.server.Metrics(s.Context())
	s.must(err)
	answers := map[string]float64{}
	for _, answer := range []string{"exact", "difference", "expired"} {
		answers[answer] = metrics.Sum("keepwatch_watch_resumptions_total", peer.Labels{"resource": "configmaps",
			"answer": answer})
	}
	if answers[want] == 0 || want != "expired" && answers["expired"] > 0 {
		s.Errorf("watches have resumed with %v, not with %s", answers, want)
	}
}

// removeSockets removes the sockets of a killed server, which cannot be copied.
func removeSockets(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeSocket != 0 {
			err = os.Remove(path)
		}
		return err
	})
}

// judge checks the events and requests of a client.
func (s *stage) judge(f *follower, relists, gap bool) {
	s.Helper()
	lists, watches := f.requests()
	most := busiest(slices.Concat(lists, watches))
	s.Logf("%s: %d lists, %d watches, at most %d requests within 10 s", f.name, len(lists), len(watches), most)
	again, least, bound := len(lists)-f.started, 0, 0
	if relists {
		// client-go first requests a state not older than its own, which is refused.
		least, bound = 1, 2
	}
	if again < least || again > bound {
		s.Errorf("%s has listed again %d times", f.name, again)
	}
	if most > 10 {
		s.Errorf("%s has made %d requests within 10 s", f.name, most)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	for uid := range s.writer.created {
		if !relists && !gap && !f.created[uid] {
			s.Errorf("%s did not receive the creation of %s", f.name, uid)
		}
		if s.writer.deleted[uid] && f.created[uid] && !f.deleted[uid] && !relists {
			s.Errorf("%s did not receive the deletion of %s", f.name, uid)
		}
	}
}

// skipped names the clients that this machine cannot run, in one line.
func skipped(lacking map[string][]string) string {
	var parts []string
	for lack, names := range lacking {
		parts = append(parts, fmt.Sprintf("%s are NOT tested, they need %s", strings.Join(names, ", "), lack))
	}
	return strings.Join(parts, "; ")
}
