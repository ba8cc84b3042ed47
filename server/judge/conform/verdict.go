package conform

import (
	"fmt"
	"net/http"
	"strings"
)

// Verdict is the judgement on one rule. The set is closed.
type Verdict uint8

// The verdicts, from the best to the worst.
const (
	// Kept means that the server did what the rule says, in all attempts.
	Kept Verdict = iota + 1
	// NotOffered means that the server refuses the requests that the rule is about, or that the
	// caller lacks a permission for them.
	NotOffered
	// Broken means that the server did something else.
	Broken
)

// String returns the verdict in words.
func (v Verdict) String() string {
	switch v {
	case Kept:
		return "kept"
	case NotOffered:
		return "not offered"
	case Broken:
		return "broken"
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// MarshalText makes the verdict a word in JSON.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// maxFacts bounds the facts of one result. A broken server breaks a rule in every watcher.
const maxFacts = 5

// Result is the verdict on one rule, for all resources that it was judged with.
type Result struct {
	Rule    Rule     `json:"rule"`
	Verdict Verdict  `json:"verdict"`
	Facts   []string `json:"facts,omitempty"` // the facts that disagree, or what is not offered; at most five
	Left    int      `json:"left,omitempty"`  // the number of facts that are left out
}

// add adds the outcome for one resource.
func (r *Result) add(resource string, o outcome) {
	r.Verdict = max(r.Verdict, o.verdict)
	for _, fact := range o.facts {
		if len(r.Facts) == maxFacts {
			r.Left++
			continue
		}
		r.Facts = append(r.Facts, resource+": "+fact)
	}
}

// outcome is the verdict on a rule for one resource.
type outcome struct {
	verdict Verdict
	facts   []string
}

// kept is the outcome of a rule that is kept.
var kept = outcome{verdict: Kept}

// broken is an outcome with two facts that disagree: what the rule requires and what was received.
func broken(required, received string) outcome {
	return outcome{Broken, []string{"required: " + required + "; received: " + received}}
}

// keptUnless is the outcome of a rule that facts contradict, if there are any.
func keptUnless(facts []string) outcome {
	if len(facts) == 0 {
		return kept
	}
	return outcome{Broken, facts}
}

// notOffered is an outcome with the reason.
func notOffered(reason string) outcome { return outcome{NotOffered, []string{reason}} }

// declines is the outcome of a rule that has no answer of the required kind to judge. A client's error is a refusal:
// the server does not offer what the rule is about, or no longer has the state to compare with. Anything else is no
// answer.
func (a answer) declines(required string) outcome {
	if a.code >= http.StatusBadRequest && a.code < http.StatusInternalServerError {
		return notOffered("in place of " + required + ": " + a.String())
	}
	return broken(required, a.String())
}

// and joins two outcomes of one rule.
func (o outcome) and(other outcome) outcome {
	return outcome{max(o.verdict, other.verdict), append(o.facts, other.facts...)}
}

// String returns the outcome as one line.
func (o outcome) String() string { return o.verdict.String() + " " + strings.Join(o.facts, "; ") }
