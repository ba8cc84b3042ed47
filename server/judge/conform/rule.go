package conform

import (
	"context"
	"errors"
	"net/http"
)

// Rule is something that clients may depend on.
type Rule struct {
	// ID names the rule in reports: an area and a word.
	ID string `json:"id"`
	// Sentence says what the server does.
	Sentence string `json:"sentence"`
	// Source is the address of the documentation or of the enhancement proposal that says so.
	Source string `json:"source"`
}

// The sources of the rules.
const (
	concepts    = "https://kubernetes.io/docs/reference/using-api/api-concepts/"
	getAndList  = concepts + "#semantics-for-get-and-list"
	forWatch    = concepts + "#semantics-for-watch"
	unavailable = concepts + "#unavailable-resource-versions"
	efficient   = concepts + "#efficient-detection-of-changes"
	chunks      = concepts + "#retrieving-large-results-sets-in-chunks"
	bookmarks   = concepts + "#watch-bookmarks"
	streaming   = concepts + "#streaming-lists"
	encodings   = concepts + "#alternate-representations-of-resources"
	conventions = "https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#concurrency-control-and-consistency"
	comparable  = "https://github.com/kubernetes/enhancements/issues/5504"
	parameters  = "https://kubernetes.io/docs/reference/kubernetes-api/common-parameters/common-parameters/"
	cbor        = "https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4222-cbor-serializer"
	websockets  = "https://pkg.go.dev/k8s.io/apiserver/pkg/endpoints/handlers#WatchServer"
	watchTypes  = "https://pkg.go.dev/k8s.io/apimachinery/pkg/watch#EventType"
)

// judged is a rule with the function that judges it by single requests. An error is one of the
// requests that no rule is about: it ends the run.
type judged struct {
	Rule
	judge func(context.Context, *subject) (outcome, error)
}

// outcome judges a resource. A write that is refused with 409 breaks the rule, whatever it is about: nobody else writes
// the run's objects, so the server has answered an earlier write with a wrong revision.
func (r judged) outcome(ctx context.Context, s *subject) (outcome, error) {
	o, err := r.judge(ctx, s)
	if refused, ok := errors.AsType[*refusedWrite](err); ok && refused.answer.code == http.StatusConflict {
		return broken("no conflict: nobody else writes the object", refused.Error()), nil
	}
	return o, err
}

// rules are the rules that single requests judge, in the order of the report.
var rules = []judged{
	{Rule{"list.newest", "A list without a resourceVersion has every write that was acknowledged before the request.",
		getAndList}, listsNewest},
	{Rule{"get.newest",
		"A get without a resourceVersion returns the state of the last acknowledged write, or 404 after a deletion.",
		getAndList}, getsNewest},
	{Rule{"get.notolder", "A get at a revision returns a state of the object at that revision or later.", getAndList},
		getsNotOlder},
	{Rule{"list.any", "A list at resourceVersion 0 returns a state that existed, with its revision.", getAndList},
		listsAny},
	{Rule{"list.notolder",
		"A list at a revision, with no match or NotOlderThan, returns a state at that revision or later.", getAndList},
		listsNotOlder},
	{Rule{"list.exact",
		"A list at a revision with match Exact returns the state at that revision, whatever changed since.", getAndList},
		listsExact},
	{Rule{"list.exactlimit", "A list at a revision with a limit and no match returns the state at that revision.",
		getAndList}, listsExactWithLimit},
	{Rule{"list.invalid",
		"Combinations of resourceVersion, resourceVersionMatch and continue that have no meaning are refused with 400 or 422.", getAndList}, refusesInvalidLists},
	{Rule{"list.future",
		"A list or get at a revision that does not exist yet waits, and then fails with 504 and the cause ResourceVersionTooLarge.", unavailable}, refusesFutureLists},
	{Rule{"list.selector",
		"Label and field selectors select exactly the matching objects, and an unsupported field is refused with 400.",
		concepts}, listsSelected},
	{Rule{"list.order", "Revisions of one resource rise with each write.", comparable},
		ordersRevisions},
	{Rule{"pages.complete", "Pages of a list have each object once, at one revision, whatever is written between them.",
		chunks}, pagesComplete},
	{Rule{"pages.notolder",
		"Pages of a list at a revision with match NotOlderThan are one state at that revision or later.", getAndList},
		pagesNotOlder},
	{Rule{"pages.expired",
		"A continue token whose revision is gone is refused with 410, with a token that continues behind the same key in the newest state.", parameters + "#continue"}, pagesExpire},
	{Rule{"pages.remaining",
		"remainingItemCount, where it is set, is above 0 where more pages follow, and is unset with a selector.",
		chunks}, pagesCountTheRest},
	{Rule{"pages.invalid", "A continue token that the server did not issue is refused with 400 or 410.", chunks},
		refusesInvalidTokens},
	{Rule{"encoding.same",
		"JSON, protobuf, Tables and metadata of one revision have the same objects, in the same states.", encodings},
		encodesSame},
	{Rule{"encoding.gzip", "A compressed list has the bytes of the plain one.", encodings}, compressesSame},
	{Rule{"encoding.cbor", "CBOR of one revision has the same objects, in the same states.", cbor}, encodesCBOR},
	{Rule{"encoding.watch", "Watches as Tables, metadata and protobuf have the events of one in JSON.", encodings},
		encodesEventsSame},
	{Rule{"encoding.websocket", "A watch over a WebSocket has the events of one over HTTP.", websockets},
		watchesOverWebSocket},
	{Rule{"watch.since", "A watch from a revision has every change behind it, once, in order, and nothing else.",
		forWatch}, watchesSince},
	{Rule{"watch.initial", "A watch without a revision, or from 0, begins with an ADDED event for each object.", forWatch},
		watchesFromAny},
	{Rule{"watch.edges",
		"An object that begins to match a selector is ADDED, and one that ends to match is DELETED at the revision of that change.", watchTypes}, watchesEdges},
	{Rule{"watch.deletion", "A DELETED event has the last state of the object and the revision of the deletion.",
		efficient}, watchesDeletions},
	{Rule{"watch.name", "A watch of one name has the events of that object only.", concepts}, watchesOneName},
	{Rule{"watch.timeout", "A watch ends without an error after timeoutSeconds.", concepts}, watchesUntilTimeout},
	{Rule{"watch.bookmarks", "A watch has no bookmarks that were not requested.", bookmarks}, watchesWithoutBookmarks},
	{Rule{"watch.old", "A watch from a revision whose history is gone fails with 410; otherwise the history is complete.",
		efficient}, watchesOld},
	{Rule{"watch.future", "A watch from a revision that does not exist yet has no event at or below it.", unavailable},
		watchesFuture},
	{Rule{"watch.invalid", "A watch with a resourceVersionMatch that has no meaning is refused with 400 or 422.",
		forWatch}, refusesInvalidWatches},
	{Rule{"initial.newest",
		"A watch with sendInitialEvents has every object of a consistent state, then a bookmark with the annotation k8s.io/initial-events-end.", streaming}, streamsNewest},
	{Rule{"initial.notolder", "With a revision, the state of sendInitialEvents is at that revision or later.", streaming},
		streamsNotOlder},
	{Rule{"initial.any", "At resourceVersion 0, the state of sendInitialEvents is one that existed, with its revision.",
		parameters + "#sendInitialEvents"}, streamsAny},
	{Rule{"initial.none", "With sendInitialEvents=false and no revision, a watch has later changes only.", parameters +
		"#sendInitialEvents"}, streamsNone},
	{Rule{"initial.then", "Behind the initial events every later change follows once.", streaming}, streamsThenChanges},
	{Rule{"write.conflict", "An update or a deletion with an old resourceVersion or another UID fails with 409.",
		conventions}, conflicts},
	{Rule{"write.exists", "Of concurrent creations of one name exactly one succeeds, and the others fail with 409.",
		conventions}, createsOnce},
}
