package conform

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/judge/internal/report"
)

// Options change a run. The zero value has the defaults.
type Options struct {
	// Namespace has the objects of the run. It must exist, and may have objects that no one changes
	// often. Default: a namespace of the run's own, which is deleted at the end.
	Namespace string
	// Watchers is the number of concurrent watchers of each resource. Default 200.
	Watchers int
	// Writes is the number of random writes of each resource that the watchers follow. Default 2,000.
	Writes int
	// Disturb is called behind a third of the writes. It may restart, compact or move what it wants of
	// the server; the run waits for its end. An error ends the run. Default: nothing.
	Disturb func(context.Context) error
	// Seed makes the writes repeatable. Default: random.
	Seed uint64
	// Progress is called with a line for people, about once a rule. Default: nothing.
	Progress func(string)

	only        func(rule string) bool // the rules that are judged, for tests; nil: all
	builtinOnly bool                   // no custom resource, for tests
	waits       waits                  // for tests; zero: defaultWaits
}

func (o Options) judges(rule string) bool { return o.only == nil || o.only(rule) }

// The defaults of Options.
const (
	DefaultWatchers = 200
	DefaultWrites   = 2000
)

func (o Options) withDefaults() Options {
	if o.Watchers <= 0 {
		o.Watchers = DefaultWatchers
	}
	if o.Writes <= 0 {
		o.Writes = DefaultWrites
	}
	if o.waits == (waits{}) {
		o.waits = defaultWaits
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1<<53) + 1 // a number that all readers of JSON keep
	}
	return o
}

func (o Options) log(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(report.Printable(fmt.Sprintf(format, args...)))
	}
}

// Report is the verdicts of a run.
type Report struct {
	Server    string        `json:"server"`    // its address
	Version   string        `json:"version"`   // that it states, or empty
	Resources []string      `json:"resources"` // that the rules were judged with
	Seed      uint64        `json:"seed"`
	Took      time.Duration `json:"tookNanoseconds"`
	Results   []Result      `json:"results"` // one a rule, in a fixed order
}

// Broken returns the rules that the server breaks.
func (r *Report) Broken() []Result {
	var all []Result
	for _, one := range r.Results {
		if one.Verdict == Broken {
			all = append(all, one)
		}
	}
	return all
}

// Run judges a server. It returns an error instead of a report if it cannot create its objects, if a
// request fails that no rule is about, or if ctx is done. It deletes what it created in all cases, for
// which it takes at most half a minute after ctx is done. The objects are labelled
// conform.keepwatch.io/run.
//
// A credential plugin of cfg is not asked with the context of a request. If one has not ended 5 s later, Run returns
// without the deletions, and Progress says how to delete what may be left. Requests that wait for it end with it.
func Run(ctx context.Context, cfg *rest.Config, o Options) (*Report, error) {
	o = o.withDefaults()
	f, err := newFixture(cfg, o)
	if err != nil {
		return nil, err
	}
	var report *Report
	ended := make(chan error, 1)
	go func() {
		var err error
		report, err = f.judge(ctx)
		ended <- err
	}()
	select {
	case err := <-ended:
		return report, err
	case <-ctx.Done():
	}
	timer := time.NewTimer(removal + leaving)
	defer timer.Stop()
	select {
	case err := <-ended:
		return report, err
	case <-timer.C:
		f.leave()
		return nil, context.Cause(ctx)
	}
}

// judge creates the objects, judges all rules, and deletes what it created.
func (f *fixture) judge(ctx context.Context) (*Report, error) {
	o, began := f.options, time.Now()
	defer f.remove()
	subjects, missing, err := f.create(ctx)
	if err != nil {
		return nil, err
	}
	report := &Report{Server: f.config.Host, Version: f.version(ctx), Seed: o.Seed}
	for _, s := range subjects {
		report.Resources = append(report.Resources, s.title)
	}
	if missing != "" {
		o.log("only %s: %s", subjects[0].title, missing)
	}
	for _, r := range rules {
		if !o.judges(r.ID) {
			continue
		}
		result := Result{Rule: r.Rule}
		outcomes := make([]outcome, len(subjects))
		group, ctx := errgroup.WithContext(ctx)
		for i, s := range subjects {
			group.Go(func() (err error) {
				outcomes[i], err = r.outcome(ctx, s.of(r.ID))
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, fmt.Errorf("%s: %w", r.ID, err)
		}
		for i, s := range subjects {
			result.add(s.title, outcomes[i])
		}
		o.log("%s: %v", r.ID, result.Verdict)
		report.Results = append(report.Results, result)
	}
	if o.judges("storm") {
		storms, err := runStorms(ctx, subjects, o)
		if err != nil {
			return nil, err
		}
		report.Results = append(report.Results, storms...)
	}
	report.Took = time.Since(began)
	return report, nil
}

// runStorms judges the rules of the storm, one resource after the other.
func runStorms(ctx context.Context, subjects []*subject, o Options) ([]Result, error) {
	var results []Result
	for _, r := range stormRules {
		results = append(results, Result{Rule: r.Rule})
	}
	results = append(results, Result{Rule: durable}, Result{Rule: disturbed})
	for _, s := range subjects {
		outcomes, err := judgeStorm(ctx, s.of("storm"), o)
		if err != nil {
			return nil, fmt.Errorf("storm: %w", err)
		}
		for i := range results {
			results[i].add(s.title, outcomes[results[i].Rule.ID])
		}
	}
	return results, nil
}
