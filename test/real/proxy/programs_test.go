package proxy

import (
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/test/matrix"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	programsFlag = flag.Int("proxy.programs", 1, "how many processes of each program TestNothingRelists runs")
	programFlag  = flag.String("proxy.program", ".", "the programs that TestNothingRelists runs, as a regular expression")
)

// program is the unmodified client of another project as a process that follows the first of relistNamespaces, and a
// record of what its user sees.
type program struct {
	client   clients.Program
	number   int
	process  *clients.Process
	requests *faults.Proxy // between the process and the proxies, without faults

	ended error // before end was called

	mu     sync.Mutex
	user   *matrix.User
	events int
	begun  int // its lists before it had the initial state
}

// programs starts the selected programs that this machine can run, for the duration of the test. The processes of one
// have synced before the next one starts: fabric8 4.13.3 does not repeat a first list that takes ten seconds, as on a
// machine that starts all of them at once.
func programs(t *testing.T, config *rest.Config) (all []*program) {
	t.Helper()
	selected, err := regexp.Compile(*programFlag)
	if err != nil {
		t.Fatalf("-proxy.program: %v", err)
	}
	for _, p := range clients.Programs() {
		// kubectl get -w ends with its connection.
		if p.Ours || p.View == clients.Condition || p.Name == "kubectl get -w" || !selected.MatchString(p.Name) {
			continue
		}
		command, err := p.Command()
		if err != nil {
			t.Logf("%s is NOT tested, it needs %v", p.Name, err)
			continue
		}
		var same []*program
		for i := range *programsFlag {
			same = append(same, startProgram(t, p, i, command, config))
		}
		for _, s := range same {
			await.True(t, s.name()+" has synced", s.hasSynced)
		}
		all = append(all, same...)
	}
	return all
}

func startProgram(t *testing.T, p clients.Program, number int, command []string, config *rest.Config) *program {
	t.Helper()
	started := &program{client: p, number: number, requests: faults.New(t, config, faults.Plan{HTTP1: true}),
		user: matrix.NewUser(nil)}
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	err := peer.WriteKubeconfig(kubeconfig, started.requests.Config())
	if err == nil {
		started.process, err = clients.Start(command, kubeconfig, relistNamespaces[0], dir, started.receive)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(started.process.End)
	return started
}

// end ends the program, which must run still.
func (p *program) end() {
	p.ended = p.process.Err()
	p.process.End()
}

func (p *program) receive(line clients.Line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.user.Receive(line)
	p.events++
}

func (p *program) name() string { return fmt.Sprint(p.client.Name, " ", p.number) }

// hasSynced reports whether the program has all objects that were there before the writer began, and watches. What it
// has listed and shown until then does not count: fabric8 4.13.3 lists twice before it watches.
func (p *program) hasSynced() bool {
	watches := p.requests.Count(faults.Watch, "configmaps") + p.requests.Count(faults.StreamList, "configmaps")
	p.mu.Lock()
	defer p.mu.Unlock()
	initial := map[string]string{}
	for _, name := range paintedNames() {
		if initial[name] = p.user.Knows(name); initial[name] == "" || watches == 0 {
			return false
		}
	}
	p.user, p.events, p.begun = matrix.NewUser(initial), 0, p.listsSoFar()
	return true
}

func (p *program) has(key keepwatch.Key, revision keepwatch.Revision) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known, _ := strings.Cut(p.user.Knows(key.Name), "/")
	has, err := keepwatch.ParseRevision(known)
	return err == nil && has >= revision
}

func (p *program) received() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events
}

// lists counts all lists before the program had the initial state as one.
func (p *program) lists() int { return 1 + p.listsSoFar() - p.begun }

func (p *program) listsSoFar() int {
	return p.requests.Count(faults.List, "configmaps") + p.requests.Count(faults.StreamList, "configmaps") +
		p.requests.Count(faults.Newest, "configmaps")
}

func (p *program) watches() int { return p.requests.Count(faults.Watch, "configmaps") }

// relisting are the programs that list after each broken connection, at every server: what changed until then hides in
// the list.
var relisting = []string{"Java informer"}

// judge demands that the user has the state at the end and, if the client shows events, has seen each state and each
// deletion once; and that the program has not listed again.
func (p *program) judge(h check.History, from keepwatch.Revision) (wrong []string) {
	writes := slices.DeleteFunc(slices.Clone(h.Epochs[0].Writes), func(w check.Write) bool {
		return w.Key.Namespace != relistNamespaces[0]
	})
	listed := p.lists()
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := p.user.Count(writes, from)
	relists := slices.Contains(relisting, p.client.Name)
	if relists || p.client.View == clients.States {
		counts = matrix.Counts{LostFinal: counts.LostFinal}
	}
	if listed > 1 && !relists {
		wrong = append(wrong, fmt.Sprintf("listed %d times", listed))
	}
	if counts != (matrix.Counts{}) {
		wrong = append(wrong, fmt.Sprintf("%+v", counts))
	}
	if p.ended != nil {
		wrong = append(wrong, p.ended.Error())
	}
	return wrong
}
