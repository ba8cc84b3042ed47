package operators

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Verdict is what an operator does that it should not. The set is closed.
type Verdict uint8

// The verdicts.
const (
	// Unstable means that the runs without a fault differ. Nothing else is judged then. If only the runs that
	// confirm findings differ, what does not rest on the values of fields remains.
	Unstable Verdict = iota + 1
	// Diverged means that the operator ends in another state than without the fault.
	Diverged
	// Duplicated means that there are more objects of a kind than without the fault.
	Duplicated
	// Leaked means that an object is still there that is gone without the fault.
	Leaked
	// Deleted means that the operator deletes an object that it keeps without the fault.
	Deleted
	// Overwritten means that the operator removes what somebody else has written beside it.
	Overwritten
	// Fighting means that the operator removes again and again what somebody else has written.
	Fighting
	// Stale means that the operator takes back its own last write, by what it has read before.
	Stale
	// Restless means that the operator never becomes quiet.
	Restless
	// Died means that the operator exits by itself.
	Died
	// Forbidden means that the operator needs a right that its roles lack.
	Forbidden
)

var verdicts = map[Verdict]struct{ name, sentence string }{
	Unstable:    {"unstable", "Runs without a fault end in the same state, except for names, times and random values."},
	Diverged:    {"diverged", "After a fault the operator arrives at the state that it arrives at without it."},
	Duplicated:  {"duplicated", "After a fault there are no more objects of a kind than without it."},
	Leaked:      {"leaked", "What is gone without the fault is gone after it, too."},
	Deleted:     {"deleted", "The operator deletes nothing that it keeps without the fault."},
	Overwritten: {"overwritten", "The operator keeps what somebody else has written to an object."},
	Fighting:    {"fighting", "The operator does not remove what somebody else writes, again and again."},
	Stale:       {"stale", "The operator does not take back its own last write, by what it has read before."},
	Restless:    {"restless", "The operator becomes quiet when nothing changes."},
	Died:        {"died", "The operator does not exit by itself."},
	Forbidden:   {"forbidden", "The roles of the operator allow everything that it asks."},
}

// String returns the verdict in a word.
func (v Verdict) String() string {
	if known, ok := verdicts[v]; ok {
		return known.name
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Sentence returns the rule that the operator breaks.
func (v Verdict) Sentence() string { return verdicts[v].sentence }

// MarshalText makes the verdict a word in JSON.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Finding is a verdict with what it rests on.
type Finding struct {
	Verdict Verdict `json:"verdict"`
	// Plan is the plan of the run, or nil for a run without a fault.
	Plan *Plan `json:"plan,omitempty"`
	// Facts are what was seen, at most five.
	Facts []string `json:"facts"`
	// Requests are the operator's writes of the step before the end, and what the judge did.
	Requests []Request `json:"requests,omitempty"`
	// Shown and Of are how many runs of the plan have shown it.
	Shown int `json:"shown"`
	Of    int `json:"of"`
	// Expected is the reason of an expectation that has the finding.
	Expected string `json:"expected,omitempty"`
	// Steps are the parts of the workload that were performed, as in Options.Steps. Empty: all.
	Steps string `json:"steps,omitempty"`
	// Smallest is the finding with as few steps, objects and faults as show it, or nil if nothing can be left out. Only
	// the first finding of each verdict and kind of plans has one.
	Smallest *Finding `json:"smallest,omitempty"`

	runs []*outcome // of the plan
	ref  *reference // beside which they were judged
}

func verdictsOf(findings []Finding) (all []Verdict) {
	for _, f := range findings {
		all = append(all, f.Verdict)
	}
	return all
}

// outcome is what a run was like.
type outcome struct {
	plan     *Plan
	found    bool // the place of the plan was reached
	given    given
	states   []state           // of the types of touched
	watches  []int             // open at the end of each step
	pauses   []time.Duration   // the longest one in each step after which the operator went on
	touched  []typeSet         // by then
	watched  []map[string]bool // the resources with watches at the end of each step; of the reference
	applied  [][]string        // the keys of the objects that each step applies; of the reference
	requests []Request
	took     time.Duration

	ended       int // the step at which the run ended
	differences []difference
	unfulfilled string // a step whose condition did not hold
	unreached   string // why the plan could not come to its place, if that is not the operator's doing
	restless    string // what the operator did at the end
	deaths      []string
	overwritten []string
	undone      int    // how often the operator has removed the annotation of foreign-annotation
	gone        string // the namespace that the judge has deleted
	withdrawn   bool   // what the plan's step had created was deleted
	redefined   bool   // the objects of a type were deleted with their definition in the plan's step
}

// arrive records the end of a step.
func (o *outcome) arrive(s state, watches int, pause time.Duration, touched typeSet) {
	o.states, o.watches, o.touched = append(o.states, s), append(o.watches, watches), append(o.touched, touched)
	o.pauses = append(o.pauses, pause)
}

// stay records a step that is left out: nothing changes in it.
func (o *outcome) stay() {
	last := len(o.states) - 1
	o.arrive(o.states[last], o.watches[last], 0, o.touched[last])
	if o.plan == nil {
		o.watched, o.applied = append(o.watched, o.watched[last]), append(o.applied, nil)
	}
}

// leave forgets the end of a step, and what came after it.
func (o *outcome) leave(n int) {
	o.states, o.watches, o.touched, o.pauses = o.states[:n], o.watches[:n], o.touched[:n], o.pauses[:n]
}

// oracle gives the facts for one verdict.
type oracle struct {
	verdict Verdict
	facts   func(*outcome, *reference) []string
}

// oracles judge a run beside the reference. Each difference of states belongs to one of them.
var oracles = []oracle{
	{Deleted, deletedFacts},
	{Duplicated, differencesThatAre(Duplicated)},
	{Leaked, differencesThatAre(Leaked)},
	{Diverged, divergedFacts},
	{Overwritten, overwrittenFacts},
	{Fighting, fightFacts},
	{Stale, staleFacts},
	{Restless, func(o *outcome, _ *reference) []string { return text(o.restless) }},
	{Died, func(o *outcome, _ *reference) []string { return o.deaths }},
	{Forbidden, forbiddenFacts},
}

func text(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func differencesThatAre(v Verdict) func(*outcome, *reference) []string {
	return func(o *outcome, ref *reference) []string {
		var facts []string
		for _, d := range o.differences {
			if ref.class(d, o.ended) == v {
				facts = append(facts, fmt.Sprintf("step %d: %v", o.ended, d))
			}
		}
		return facts
	}
}

// divergedFacts leaves out what deletedFacts has.
func divergedFacts(o *outcome, ref *reference) []string {
	var facts []string
	for _, d := range o.differences {
		deleted := func(r Request) bool { return r.key() == classOf(d.key) && o.deletesWrongly(r, ref) }
		if d.isMissing() && (o.collects(d.key) || slices.ContainsFunc(o.requests, deleted)) {
			continue
		}
		if ref.class(d, o.ended) == Diverged {
			facts = append(facts, fmt.Sprintf("step %d: %v", o.ended, d))
		}
	}
	return append(facts, text(o.unfulfilled)...)
}

// class returns the verdict to which a difference belongs.
func (ref *reference) class(d difference, step int) Verdict {
	switch {
	case d.left:
		return Leaked
	case d.path != "" || d.have == "":
		return Diverged
	}
	for _, earlier := range ref.states[:step] {
		if _, was := earlier[d.key]; was {
			return Leaked
		}
	}
	return Duplicated
}

// deletesWrongly reports whether a request is a deletion that the reference does not have, of an object that it has at
// the end of the step.
func (o *outcome) deletesWrongly(r Request, ref *reference) bool {
	if o.gone != "" && r.Namespace == o.gone || o.withdrawn || o.redefined && r.Step == o.plan.Place.Step {
		return false
	}
	if r.Verb != "delete" || r.Subresource != "" || r.Status == 0 || r.Status > 299 || r.Step == 0 ||
		r.Step >= len(ref.states) {
		return false
	}
	return ref.states[r.Step].needs(r) && !ref.deletes[deletion{r.Step, r.key()}] &&
		!(o.joins(r.Step) && ref.deletes[deletion{r.Step - 1, r.key()}])
}

// deletedFacts has the objects that hold data first: of many facts, a report shows the first ones.
func deletedFacts(o *outcome, ref *reference) []string {
	var data, others []string
	add := func(resource, fact string) {
		if holdsData(resource) {
			data = append(data, fact)
		} else {
			others = append(others, fact)
		}
	}
	for _, r := range o.requests {
		if o.deletesWrongly(r, ref) {
			add(r.Resource, fmt.Sprintf("step %d: the operator deletes %s", r.Step, r.key()))
		}
	}
	for _, d := range o.differences {
		if d.isMissing() && o.collects(d.key) {
			resource, _, _ := strings.Cut(d.key, " ")
			add(resource, fmt.Sprintf("step %d: the operator deletes %s in a collection", o.ended, d.key))
		}
	}
	return append(data, others...)
}

// holdsData reports whether what an object of the type stands for cannot be made again.
func holdsData(resource string) bool {
	return resource == "persistentvolumeclaims" || resource == "persistentvolumes"
}

// needs reports whether a deletion takes an object that the state has. It may take what would have gone anyway, and of
// those with random names what the operator has created too much.
func (s state) needs(r Request) bool {
	if !r.kept {
		return false
	}
	if !isPattern(r.Name) {
		_, is := s[r.key()]
		return is
	}
	_, all := s[numbered(r.key(), r.among)]
	return r.among > 0 && all
}

// joins reports whether the operator sees a step together with the one before it: what it does for that comes in this
// one.
func (o *outcome) joins(step int) bool {
	if o.plan == nil || o.plan.Place.Step != step-1 {
		return false
	}
	kind, _ := kindOf(o.plan.Kind)
	return kind.during == delayed || kind.during == unobserved
}

// collects reports whether a deletion of a collection in the last step may have deleted an object.
func (o *outcome) collects(key string) bool {
	return slices.ContainsFunc(o.requests, func(r Request) bool {
		return r.Verb == "deletecollection" && r.Status/100 == 2 && r.Step == o.ended && strings.HasPrefix(key, r.key())
	})
}

// overwrittenFacts has a removed annotation unless it was removed each time.
func overwrittenFacts(o *outcome, _ *reference) []string {
	if o.undone == 0 || o.undone == insistence {
		return o.overwritten
	}
	return append(o.overwritten, fmt.Sprintf("%s has lost the annotation %s, which somebody had added", o.plan.Place.key(),
		ForeignAnnotation))
}

func fightFacts(o *outcome, _ *reference) []string {
	if o.undone < insistence {
		return nil
	}
	return text(fmt.Sprintf("%s has lost the annotation %s %d times, each time that somebody has added it",
		o.plan.Place.key(), ForeignAnnotation, o.undone))
}

// staleFacts finds the writes that restore what their object was before the operator's last write, and that were made
// while cached reads were old. The reference may do so for other reasons.
func staleFacts(o *outcome, ref *reference) []string {
	var facts []string
	for _, r := range o.requests {
		if r.restores && r.ofPast && !ref.restores[deletion{r.Step, r.key()}] {
			facts = append(facts, fmt.Sprintf("step %d: the operator makes %s what it was before its own last write", r.Step,
				r.key()))
		}
	}
	return facts
}

// forbiddenFacts leaves out what the operator is refused without a fault, too: that is a finding without a plan.
func forbiddenFacts(o *outcome, ref *reference) []string {
	var facts []string
	for _, r := range o.requests {
		if r.refused && (o.plan == nil || !ref.refused[r.anyStep()]) {
			facts = append(facts, fmt.Sprintf("step %d: %s is forbidden", r.Step, r.words()))
		}
	}
	return facts
}
