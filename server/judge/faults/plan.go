package faults

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Plan says what goes wrong with which requests. The zero value forwards everything.
type Plan struct {
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
	// Incident is the address of a report of what the plan imitates.
	Incident string `json:"incident,omitempty"`
	// Seed determines all random decisions; 0 draws one at the start.
	Seed uint64 `json:"seed,omitempty"`
	// HTTP1 serves HTTP/1.1 only: each watch has a connection of its own.
	HTTP1 bool `json:"http1,omitempty"`
	// Rules are tried in their order. The first one that selects a request, and whose
	// probability hits, decides about it. Writes are never selected.
	Rules []Rule `json:"rules,omitempty"`
	// Fate draws a fault for every request that no rule selects.
	Fate Fate `json:"-"`
}

// Rule selects requests, and gives each of them one fault. docs/faults.md lists the faults, and
// which of the parameters below each has.
type Rule struct {
	Match Match `json:"match,omitempty"`
	// Probability is the share of the selected requests that meet the fault; 0 is all of them.
	Probability float64 `json:"probability,omitempty"`
	Fault       string  `json:"fault"`
	// After is where in the answer the fault occurs; the zero value is its beginning.
	After Position `json:"after,omitempty"`
	// For is how long the fault lasts; 0 is until the client closes the request.
	For metav1.Duration `json:"for,omitempty"`
	// Status is a reason of the Kubernetes API, such as Expired or TooManyRequests, or
	// ResourceVersionTooLarge.
	Status string `json:"status,omitempty"`
	// RetryAfter is sent with a status, in whole seconds.
	RetryAfter metav1.Duration `json:"retryAfter,omitempty"`
	// Lag is the least age of a stale state.
	Lag metav1.Duration `json:"lag,omitempty"`
	// Rate is the bytes a second of a slow answer.
	Rate int64 `json:"rate,omitempty"`
	// Size is the bytes of an oversized event.
	Size int64 `json:"size,omitempty"`
}

// Match selects requests. Each field that is set must match.
type Match struct {
	// Verb is list (all pages), page (all but the first), watch, watchlist (a watch with
	// sendInitialEvents), get, or other (discovery and what has no resource).
	Verb string `json:"verb,omitempty"`
	// Resource is such as pods or deployments.apps.
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// LabelSelector and FieldSelector equal the request's, in any order of their terms.
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	// UserAgent is a part of the request's.
	UserAgent string `json:"userAgent,omitempty"`
	// Nth are numbers of requests: 1 is the first request of a user agent that the rest of the match selects, of the same
	// verb, resource and namespace, and about which no earlier rule has decided. Every is 3 for each third one.
	Nth   []int `json:"nth,omitempty"`
	Every int   `json:"every,omitempty"`
	// From and Until bound the time since the proxy's start; 0 is no bound.
	From  metav1.Duration `json:"from,omitempty"`
	Until metav1.Duration `json:"until,omitempty"`
}

// Position is a place in an answer. At most one of its fields is set, besides Random.
type Position struct {
	Bytes  int64 `json:"bytes,omitempty"`
	Events int   `json:"events,omitempty"` // of a watch
	// Idle is a time in which a watch had no event. A rule with Events, Idle or Time selects watches only.
	Idle metav1.Duration `json:"idle,omitempty"`
	// Time is the time since the answer began, of a watch.
	Time metav1.Duration `json:"time,omitempty"`
	// Random draws a value from 0 to the one above for each request.
	Random bool `json:"random,omitempty"`
}

// maxPlan and maxRules bound a plan.
const (
	maxPlan  = 16 << 20
	maxRules = 100_000
)

// ReadPlan reads a plan from a file. See ParsePlan.
func ReadPlan(file string) (Plan, error) {
	info, err := os.Stat(file)
	if err != nil {
		return Plan{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxPlan {
		return Plan{}, fmt.Errorf("%s: not a file of at most %d bytes", file, maxPlan)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return Plan{}, err
	}
	plan, err := ParsePlan(text)
	if err != nil {
		return Plan{}, fmt.Errorf("%s: %w", file, err)
	}
	return plan, nil
}

// ParsePlan parses a plan in YAML or JSON. Its error names each unknown field and each wrong value with its place, such
// as rules[2].after.events.
func ParsePlan(text []byte) (Plan, error) {
	if len(text) > maxPlan {
		return Plan{}, fmt.Errorf("more than %d bytes", maxPlan)
	}
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return Plan{}, err
	}
	var plan Plan
	unknown, err := json.UnmarshalStrict(asJSON, &plan)
	if err := errors.Join(append(unknown, err)...); err != nil {
		return Plan{}, err
	}
	_, err = plan.compile()
	return plan, err
}

// compiledRule is a rule that was checked.
type compiledRule struct {
	match         Match
	classes       []Class
	labelSelector string // in the parser's order
	fieldSelector string
	probability   float64 // 1 is always
	fault         Fault
	random        bool
}

// compile checks the rules.
func (p *Plan) compile() ([]compiledRule, error) {
	if len(p.Rules) > maxRules {
		return nil, fmt.Errorf("rules: %d, at most %d", len(p.Rules), maxRules)
	}
	compiled := make([]compiledRule, len(p.Rules))
	var problems []error
	for i := range p.Rules {
		var err error
		if compiled[i], err = p.Rules[i].compile(); err != nil {
			problems = append(problems, fmt.Errorf("rules[%d].%w", i, err))
		}
		if len(problems) == 10 {
			break
		}
	}
	return compiled, errors.Join(problems...)
}

func (r *Rule) compile() (compiledRule, error) {
	c := compiledRule{match: r.Match, probability: r.Probability, random: r.After.Random}
	if r.Probability < 0 || r.Probability > 1 {
		return c, fmt.Errorf("probability: %v is not between 0 and 1", r.Probability)
	}
	if r.Probability == 0 {
		c.probability = 1
	}
	d, ok := kinds[kind(r.Fault)]
	if !ok {
		return c, fmt.Errorf("fault: unknown fault %q: one of %s", r.Fault, strings.Join(kindNames(), ", "))
	}
	if err := c.compileMatch(d); err != nil {
		return c, fmt.Errorf("match.%w", err)
	}
	if err := r.checkParameters(d.parameters); err != nil {
		return c, err
	}
	if r.After.Events > 0 || r.After.Idle.Duration > 0 || r.After.Time.Duration > 0 {
		c.classes = slices.DeleteFunc(c.classes, func(class Class) bool { return !slices.Contains(watches, class) })
	}
	if len(c.classes) == 0 {
		return c, fmt.Errorf("after: events, idle and time are places in a watch, and match.verb is %s", r.Match.Verb)
	}
	fault, err := r.fault()
	c.fault = fault
	return c, err
}

// kindNames returns the faults of plans.
func kindNames() []string {
	var names []string
	for k := range kinds {
		names = append(names, string(k))
	}
	slices.Sort(names)
	return names
}

// verbs are the classes that a plan's verb selects.
var verbs = map[string][]Class{
	"":          {List, ListPage, Newest, StreamList, Watch, Get, Other},
	"list":      {List, ListPage, Newest},
	"page":      {ListPage},
	"watch":     {Watch, StreamList},
	"watchlist": {StreamList},
	"get":       {Get},
	"other":     {Other},
}

func (c *compiledRule) compileMatch(d description) error {
	classes, ok := verbs[c.match.Verb]
	if !ok {
		return fmt.Errorf("verb: %q: give list, page, watch, watchlist, get or other; writes always pass", c.match.Verb)
	}
	for _, class := range classes {
		if d.classes == nil || slices.Contains(d.classes, class) {
			c.classes = append(c.classes, class)
		}
	}
	if len(c.classes) == 0 {
		return fmt.Errorf("verb: the fault does not occur with %q", c.match.Verb)
	}
	for _, n := range c.match.Nth {
		if n < 1 {
			return fmt.Errorf("nth: %d: the first request is 1", n)
		}
	}
	if c.match.Every < 0 {
		return fmt.Errorf("every: %d is below 0", c.match.Every)
	}
	if c.match.From.Duration < 0 || c.match.Until.Duration < 0 {
		return errors.New("from, until: a time below 0")
	}
	if until := c.match.Until.Duration; until > 0 && until <= c.match.From.Duration {
		return fmt.Errorf("until: %s is not after from", until)
	}
	var err error
	if c.labelSelector, err = canonicalLabels(c.match.LabelSelector); err != nil {
		return fmt.Errorf("labelSelector: %w", err)
	}
	if c.fieldSelector, err = canonicalFields(c.match.FieldSelector); err != nil {
		return fmt.Errorf("fieldSelector: %w", err)
	}
	return nil
}

func canonicalLabels(text string) (string, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return "", err
	}
	return selector.String(), nil
}

func canonicalFields(text string) (string, error) {
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return "", err
	}
	terms := strings.Split(selector.String(), ",")
	slices.Sort(terms)
	return strings.Join(terms, ","), nil
}

// checkParameters compares the rule's parameters with those that its fault has.
func (r *Rule) checkParameters(p parameters) error {
	position := r.After
	position.Random = false
	set := []struct {
		name     string
		is       bool
		optional parameters
		required parameters
	}{
		{"after", r.After != Position{}, withAfter, 0},
		{"for", r.For.Duration != 0, withFor, needsFor},
		{"status", r.Status != "", 0, withStatus},
		{"retryAfter", r.RetryAfter.Duration != 0, withStatus, 0},
		{"lag", r.Lag.Duration != 0, 0, needsLag},
		{"rate", r.Rate != 0, 0, needsRate},
		{"size", r.Size != 0, withSize, 0},
	}
	for _, s := range set {
		if s.is && p&(s.optional|s.required) == 0 {
			return fmt.Errorf("%s: %s has none", s.name, r.Fault)
		}
		if !s.is && p&s.required != 0 {
			return fmt.Errorf("%s: %s needs one", s.name, r.Fault)
		}
	}
	fields := 0
	for _, is := range []bool{position.Bytes != 0, position.Events != 0, position.Idle.Duration != 0,
		position.Time.Duration != 0} {
		if is {
			fields++
		}
	}
	switch {
	case fields > 1:
		return errors.New("after: give one of bytes, events, idle and time")
	case fields == 0 && r.After.Random:
		return errors.New("after.random: give one of bytes, events, idle and time, too")
	case position.Bytes < 0 || position.Events < 0 || position.Idle.Duration < 0 || position.Time.Duration < 0:
		return errors.New("after: a number below 0")
	case r.For.Duration < 0 || r.Lag.Duration < 0 || r.RetryAfter.Duration < 0:
		return errors.New("for, lag, retryAfter: a time below 0")
	case r.Rate < 0:
		return fmt.Errorf("rate: %d is below 0", r.Rate)
	case r.Size < 0 || r.Size > maxFrame:
		return fmt.Errorf("size: %d is not between 1 and %d", r.Size, maxFrame)
	}
	return nil
}

// fault returns the rule's fault, whose parameters were checked.
func (r *Rule) fault() (Fault, error) {
	f := Fault{kind: kind(r.Fault), length: r.For.Duration, lag: r.Lag.Duration, bytes: r.Rate + r.Size}
	if f.kind == oversized && f.bytes == 0 {
		f.bytes = defaultSize
	}
	f.after = position{r.After.Bytes, r.After.Events, r.After.Idle.Duration, r.After.Time.Duration}
	if r.Status == "" {
		return f, nil
	}
	make, ok := statuses[r.Status]
	if !ok {
		return f, fmt.Errorf("status: unknown reason %q: one of %s", r.Status, strings.Join(statusNames(), ", "))
	}
	f.status = newStatus(f.kind, make()).status
	if r.RetryAfter.Duration > 0 {
		details := f.status.Details
		if details == nil {
			details = &metav1.StatusDetails{}
		}
		details.RetryAfterSeconds = int32(min(r.RetryAfter.Duration.Round(time.Second)/time.Second, 1<<30))
		f.status.Details = details
	}
	return f, nil
}

// selects reports whether the rule is for a request, except for its number.
func (c *compiledRule) selects(req *Request, now time.Duration) bool {
	m := &c.match
	return slices.Contains(c.classes, req.Class) &&
		(m.Resource == "" || m.Resource == req.Resource) &&
		(m.Namespace == "" || m.Namespace == req.Namespace) &&
		strings.Contains(req.Client, m.UserAgent) &&
		now >= m.From.Duration && (m.Until.Duration == 0 || now < m.Until.Duration) &&
		(m.LabelSelector == "" || sameSelector(canonicalLabels, c.labelSelector, req.labelSelector)) &&
		(m.FieldSelector == "" || sameSelector(canonicalFields, c.fieldSelector, req.fieldSelector))
}

func sameSelector(canonical func(string) (string, error), want, got string) bool {
	got, err := canonical(got)
	return err == nil && got == want
}

// selectsNumber reports whether the rule is for the n-th request that it selects.
func (c *compiledRule) selectsNumber(n int) bool {
	switch {
	case len(c.match.Nth) > 0 && slices.Contains(c.match.Nth, n):
		return true
	case c.match.Every > 0:
		return n%c.match.Every == 0
	}
	return len(c.match.Nth) == 0
}

// isWebAddress reports whether an incident's address can be opened.
func isWebAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Host != ""
}
