package operators

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// Options are the surroundings of an operator, and how it is judged.
type Options struct {
	// Operator is what is judged.
	Operator Operator
	// Next is the operator's next version, for the plans in which it takes over. Default: there are none.
	Next *Operator
	// CRDs are files and folders with CustomResourceDefinitions and other objects that exist before the operator starts.
	CRDs []string
	// RBAC are files and folders with roles, bindings and the service account of the operator. It runs as the first
	// service account that a binding names. Without them it may do everything.
	RBAC []string
	// Webhooks are files and folders with webhook configurations of the operator, whose command has {port}. They are
	// called there. Other objects in the files are left out. Default: DefaultWebhooks, if that exists.
	Webhooks []string
	// Workload is a folder. See the package's documentation.
	Workload string
	// Samples are files and folders with objects. If there is no Workload, one is derived from them, see the package's
	// documentation. Default: DefaultSamples, if that exists.
	Samples []string
	// Steps selects parts of the workload, as a report names them in Finding.Steps: "1,3.2" is the first file, and the
	// second object of the third. Default: all.
	Steps string
	// Simulate runs pods and workloads without containers: Deployments, StatefulSets and Jobs become ready.
	Simulate bool
	// Plans selects plans: kinds, like "lost-answer", or texts of single plans, like
	// "lost-answer:2:update:widgets.example.com/status:default/web:1", or "lost-answer:17", which has a number from
	// Report.Places, or "none". Default: all.
	Plans []string
	// Limit bounds the number of plans. Which ones run is chosen by Seed. Default: no bound.
	Limit int
	// Seed chooses the plans that Limit leaves, and their order. Default: random.
	Seed uint64
	// Quiet is the time without activity after which the operator is quiet. Default one second. If the runs without a
	// fault differ, they are repeated with twice and with four times of it.
	Quiet time.Duration
	// Patience bounds each step: the time in which the operator becomes quiet, in the state of the reference. Retries
	// of the operator that are later than this are not waited for. Default 30 seconds.
	Patience time.Duration
	// Repeat is the number of runs of a plan whose first run has a finding. Default 3.
	Repeat int
	// Whole leaves findings as they are, without a search for smaller plans that have them.
	Whole bool
	// Parallel is the number of runs at a time. Default: four a processor.
	Parallel int
	// Expected are the findings that are accepted.
	Expected []Expectation
	// Progress is called with a line for people, about once a run, by several goroutines. Default: nothing.
	Progress func(string)

	slots   chan struct{} // one of them is taken by each run
	runs    *atomic.Int64 // that were started
	names   []namePattern // of random names, as the runs without a fault have shown
	without Verdict       // the oracle that is off, for tests
	hurry   time.Duration // the patience of runs with a plan, from the last activity of an operator that stops, for tests
	outage  time.Duration // the length of an outage, for tests
	answer  time.Duration // the time after which a timeout is answered, for tests
	// serve starts the server of the first world, for tests. Default: newTestServer.
	serve func(t *traffic, simulate, roles bool) (server, error)
}

// The defaults of Options.
const (
	DefaultQuiet    = time.Second
	DefaultPatience = 30 * time.Second
	DefaultRepeat   = 3
)

func defaultParallel() int { return 4 * runtime.GOMAXPROCS(0) } // a run mostly waits

// Check returns an error for options that are no run: the mistakes of a user that need no server to be seen.
func (o Options) Check() error {
	for _, operator := range []*Operator{&o.Operator, o.Next} {
		if operator != nil && len(operator.Command) == 0 && operator.Start == nil {
			return errors.New("there is no operator: give a command")
		}
	}
	if o.Workload == "" && len(o.samplesOf()) == 0 {
		return errors.New("there is no workload: give a folder with a file a step, or samples of custom resources")
	}
	if len(o.Webhooks) > 0 && !o.servesWebhooks() {
		return errors.New("there are webhooks, and the operator's command has no {port} at which to call them")
	}
	if o.Quiet < 0 || o.Patience < 0 || o.Repeat < 0 || o.Parallel < 0 || o.Limit < 0 {
		return errors.New("a time or a number is negative")
	}
	for _, text := range o.Plans {
		kind, _, _ := strings.Cut(text, ":")
		if _, known := kindOf(kind); !known && text != noPlan {
			return fmt.Errorf("the kind of plans %q is unknown: give one of %s", kind, kindNames())
		}
	}
	return nil
}

func (o Options) complete() (Options, error) {
	if err := o.Check(); err != nil {
		return o, err
	}
	if o.Quiet == 0 {
		o.Quiet = DefaultQuiet
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	if o.Repeat == 0 {
		o.Repeat = DefaultRepeat
	}
	if o.Parallel == 0 {
		o.Parallel = defaultParallel()
	}
	o.slots, o.runs = make(chan struct{}, o.Parallel), &atomic.Int64{}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	return o, nil
}

func (o Options) log(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}
