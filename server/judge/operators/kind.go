package operators

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch"
)

// Kind is what a plan does. The set is closed: see [Kinds].
type Kind struct {
	// Name is the first part of a plan's text.
	Name string
	// Sentence says what happens.
	Sentence string

	// fits selects the writes that the kind disturbs. It is nil for kinds that disturb steps.
	fits func(Place) bool
	// within selects among them by what the workload does. Nil selects all.
	within func(*reference, Place) bool
	// meet replaces the execution of a write.
	meet func(*disturbance, exchange)
	// times is the number of writes that meet it, if more than one.
	times int
	// during replaces the wait before and after a step is performed.
	during during
	// mayIdle is true if the operator may have nothing to do by its old reads.
	mayIdle bool
}

// during is how a kind disturbs a step.
type during uint8

const (
	down       during = iota + 1 // the operator is stopped before the step, and started after it
	unobserved                   // the operator is cut off during the step and the next one, and the history is gone after
	deleted                      // the object of the write is deleted at the end of its step
	recreated                    // the same, and it is created again
	// the object of the write is annotated at the end of its step, and again when it loses that
	insisted
	delayed   // the events of one type come late
	expired   // the events of one type in the step are lost, and the history is gone
	outage    // every write in the step is refused for a time
	undefined // a definition is deleted at the end of its step, and created again
	blocked   // the object of the write cannot go until the operator is quiet without it
)

// Kinds are the kinds of plans, in the order in which they run.
var Kinds = []Kind{
	{
		Name: "crash-before-write", fits: every, meet: crashBefore,
		Sentence: "the operator is killed before a write arrives, and started again",
	},
	{
		Name: "crash-after-write", fits: every, meet: crashAfter,
		Sentence: "the operator is killed when a write was answered, and started again",
	},
	{
		Name: "crash-unanswered-write", fits: every, meet: crashUnanswered,
		Sentence: "a write takes effect, and the operator is killed before the answer",
	},
	{
		Name: "lost-answer", fits: every, meet: loseAnswer,
		Sentence: "a write takes effect, and its connection breaks before the answer",
	},
	{
		Name: "timeout", fits: every, meet: timeOut,
		Sentence: "a write takes effect, and is answered after 15 s with 504, if the client still waits",
	},
	{
		Name: "conflict", fits: changes, meet: refuseWith(http.StatusConflict), times: 3,
		Sentence: "an update or a patch is answered with 409 Conflict three times",
	},
	{
		Name: "throttled", fits: every, meet: refuseWith(http.StatusTooManyRequests), times: 3,
		Sentence: "a write is answered with 429 and Retry-After three times",
	},
	{
		Name: "failing", fits: every, meet: refuseWith(http.StatusInternalServerError), times: 3,
		Sentence: "a write is answered with 500 three times",
	},
	{
		Name: "unavailable", fits: every, meet: refuseWith(http.StatusServiceUnavailable), times: 3,
		Sentence: "a write is answered with 503 three times, in plain text, as by a load balancer",
	},
	{
		Name: "outage", meet: refuseInOutage, during: outage,
		Sentence: "the writes in a step are answered with 500 for 30 s, or until the operator no longer tries",
	},
	{
		Name: "forbidden", fits: every, meet: refuseWith(http.StatusForbidden), times: 3,
		Sentence: "a write is answered with 403 three times",
	},
	{
		Name: "foreign-edit", fits: changesObject, within: (*reference).changesExisting, meet: editBefore,
		Sentence: "somebody annotates an object and adds a finalizer just before the operator changes it",
	},
	{
		Name: "stale-restart", fits: every, meet: restartStale,
		Sentence: "the operator is killed after a write, and its cached reads are those before the write until it is quiet",
	},
	{
		Name: "time-travel", fits: every, meet: travelBack, mayIdle: true,
		Sentence: "the operator is killed after a write, and its cached reads are those before the step until it is quiet",
	},
	{
		Name: "foreign-delete", fits: maybeCreates, within: (*reference).creates, during: deleted,
		Sentence: "somebody deletes an object that the operator has created",
	},
	{
		Name: "foreign-recreate", fits: maybeCreates, within: (*reference).creates, during: recreated,
		Sentence: "somebody deletes an object that the operator has created, and creates it again",
	},
	{
		Name: "foreign-annotation", fits: maybeCreatesNamed, within: (*reference).creates, during: insisted,
		Sentence: "somebody annotates an object that the operator has created, up to three times if it loses the annotation",
	},
	{
		Name: "foreign-finalizer", fits: maybeCreatesNamed, within: (*reference).goesLater, during: blocked,
		Sentence: "an object of the operator has a finalizer of somebody else, and stays for a while after its deletion",
	},
	{
		Name: "namespace-gone", fits: inNamespace, within: (*reference).isGivenNamespace, meet: deleteNamespace,
		Sentence: "the namespace of a write is deleted just before it arrives",
	},
	{
		Name: "definition-gone", during: undefined,
		Sentence: "somebody deletes the definition of a type, with its objects, and creates both again",
	},
	{
		Name: withdrawnKind, fits: every, within: (*reference).isWithdrawable, meet: withdraw,
		Sentence: "what a step has created is deleted again, just before a write of the operator arrives",
	},
	{
		Name: upgradedKind, fits: every, within: (*reference).hasNext, meet: takeOver,
		Sentence: "the operator is killed when a write was answered, and its next version is started",
	},
	{
		Name: "downtime", during: down,
		Sentence: "the operator is down during a step",
	},
	{
		Name: "delayed", during: delayed,
		Sentence: "the events of one type arrive after those of the others, and of the next step",
	},
	{
		Name: "expired", during: expired,
		Sentence: "the watch of one type breaks without the events of a step, and has to list: its history has expired",
	},
	{
		Name: "unobserved", during: unobserved,
		Sentence: "the operator sees two steps as one, in a list",
	},
}

func kindOf(name string) (*Kind, bool) {
	for i := range Kinds {
		if Kinds[i].Name == name {
			return &Kinds[i], true
		}
	}
	return nil, false
}

func every(Place) bool { return true }

func changes(p Place) bool { return p.Verb == "update" || p.Verb == "patch" }

func changesObject(p Place) bool { return changes(p) && p.Subresource == "" }

// maybeCreates selects the writes that can create an object; of several with random names the first one: these are
// alike. Whether one does is seen by its answer: a patch may be a server-side apply.
func maybeCreates(p Place) bool {
	return (p.Verb == "create" || p.Verb == "patch") && p.Subresource == "" && p.Name != "" &&
		(p.Nth == 1 || !isPattern(p.Name))
}

func maybeCreatesNamed(p Place) bool { return maybeCreates(p) && !isPattern(p.Name) }

// creates reports whether a write creates its object, in some run.
func (ref *reference) creates(p Place) bool { return ref.created[p] }

func (ref *reference) changesExisting(p Place) bool { return !ref.created[p] }

// isGivenNamespace reports whether the operator does not make the namespace of a write itself: it may make that again.
func (ref *reference) isGivenNamespace(p Place) bool {
	for made := range ref.created {
		if made.Resource == "namespaces" && made.Name == p.Namespace {
			return false
		}
	}
	return true
}

// inNamespace selects the writes whose namespace can be deleted.
func inNamespace(p Place) bool {
	return p.Namespace != "" && p.Namespace != metav1.NamespaceDefault && !strings.HasPrefix(p.Namespace, "kube-")
}

// Plan is a kind at a place.
type Plan struct {
	Kind  string `json:"kind"`
	Place Place  `json:"place"`
	// Times is the number of faults of a smaller plan, or zero for those of its kind.
	Times int `json:"times,omitempty"`
}

// String is the plan as --plan reads it.
func (p Plan) String() string { return p.Kind + ":" + p.Place.String() + timesWords[p.Times] }

// text is that of a plan, or nothing.
func (p *Plan) text() string {
	if p == nil {
		return ""
	}
	return p.String()
}

// disturbance is a plan in a run.
type disturbance struct {
	*Kind
	place Place
	times int // of writes that meet it
	run   *run

	mu     sync.Mutex
	found  bool
	edited types.UID // of the object that foreign-edit has annotated
	lost   bool      // the finalizer of foreign-edit
	holds  types.UID // of the object that has ForeignFinalizer; "" if none has
	gone   string    // the namespace that namespace-gone has deleted
	// withdrawn is true after owner-gone has deleted what its step had created.
	withdrawn bool
	over      bool  // the outage
	late      bool  // the answer to a write waits for answerTime
	err       error // the judge's own
}

// waitsFor reports whether a write is the place, or one of those that follow it.
func (d *disturbance) waitsFor(p Place) bool {
	switch {
	case d.meet == nil:
		return false
	case d.during == outage:
		return p.Step == d.place.Step && !d.isOver()
	}
	n := p.Nth - d.place.Nth
	p.Nth = d.place.Nth
	return p == d.place && n >= 0 && n < d.times
}

// happens records that the plan has begun.
func (d *disturbance) happens(format string, args ...any) {
	d.run.world.traffic.note(fmt.Sprintf(format, args...))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = true
}

// forget takes back that the plan has begun: nothing can be judged.
func (d *disturbance) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = false
}

func (d *disturbance) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = err
	}
}

func (d *disturbance) state() (found bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.found, d.err
}

func crashBefore(d *disturbance, x exchange) {
	d.happens("the operator is killed: the write does not arrive")
	x.t.killNow()
	x.abort()
}

func crashUnanswered(d *disturbance, x exchange) {
	x.execute()
	d.happens("the operator is killed: it does not receive the answer")
	x.t.killNow()
	x.abort()
}

func crashAfter(d *disturbance, x exchange) {
	defer x.t.resume()
	x.serveLast()
	d.happens("the operator is killed: it has received the answer")
	x.t.killNext()
}

func loseAnswer(d *disturbance, x exchange) {
	x.execute()
	d.happens("the connection breaks before the answer")
	x.abort()
}

// answerTime passes before a timeout is answered. An API server lets a minute pass; many clients wait less.
const answerTime = 15 * time.Second

// timeOut executes a write, and answers as an API server does that was too slow, if the client still waits for that.
func timeOut(d *disturbance, x exchange) {
	x.execute()
	d.happens("the write is executed: its answer is late")
	d.holdAnswer(true)
	defer d.holdAnswer(false)
	select {
	case <-x.q.Context().Done():
		x.t.note("the client does not wait any longer")
		x.abort()
	case <-time.After(cmp.Or(d.run.options.answer, answerTime)):
		x.t.note(fmt.Sprintf("the answer is %d", http.StatusGatewayTimeout))
		x.answer(http.StatusGatewayTimeout)
	}
}

func (d *disturbance) holdAnswer(hold bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.late = hold
}

// holdsAnswer reports whether the operator waits for an answer that the plan holds.
func (d *disturbance) holdsAnswer() bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.late
}

func refuseWith(status int) func(*disturbance, exchange) {
	return func(d *disturbance, x exchange) {
		d.happens("the write is answered with %d", status)
		x.refuse(status)
	}
}

// outageTime is how long an outage lasts, if the operator does not stop before.
const outageTime = 30 * time.Second

func refuseInOutage(d *disturbance, x exchange) {
	if found, _ := d.state(); !found {
		d.happens("all writes of this step are answered with 500")
	}
	x.refuse(http.StatusInternalServerError)
}

func (d *disturbance) isOver() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

func (d *disturbance) endOutage() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
}

func restartStale(d *disturbance, x exchange) {
	defer x.t.resume()
	before := d.run.world.Revision()
	x.serveLast()
	d.restartAt(x, before, "write")
}

func travelBack(d *disturbance, x exchange) {
	defer x.t.resume()
	x.serveLast()
	d.restartAt(x, d.run.before, "step")
}

// restartAt kills the operator, and answers its cached reads from a revision.
func (d *disturbance) restartAt(x exchange, revision keepwatch.Revision, of string) {
	if err := d.run.travel(revision); err != nil {
		d.fail(err)
		return
	}
	d.happens("the operator is killed; until it is quiet again, its cached reads are those before this %s", of)
	x.t.killNext()
}
