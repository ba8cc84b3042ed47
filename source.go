package keepwatch

import "context"

// Source lists and watches one resource, perhaps under a selector that the
// source applies itself. A Source decides nothing: it reports every trouble as
// a *[Failure], and a reflector knows what to do.
//
// A Source may be used by one reflector at a time; its methods start no
// goroutine that outlives the call, but for what a returned [Watch] owns until
// its Close.
type Source interface {
	// List reads one page. Errors are *Failure.
	List(ctx context.Context, req ListRequest) (Page, error)

	// StreamList reads the whole state through a watch (KEP-3157), calling emit
	// with bounded slices of it as they arrive, and then goes on watching from
	// the revision it returns. It fails with [StreamingListUnsupported] when the
	// source has no such thing, or does not bring it to its end; whatever was emitted
	// before a failure is void. An error of emit is returned as it is.
	StreamList(ctx context.Context, notOlderThan Revision, emit func([]Object) error) (Revision, Watch, error)

	// Newest asks for the newest committed revision, by a consistent read that costs
	// the source little. Errors are *Failure.
	Newest(ctx context.Context) (Revision, error)

	// Watch opens the history after from. Cancelling ctx closes it.
	Watch(ctx context.Context, from Revision) (Watch, error)
}

// ListRequest asks for one page of a list.
type ListRequest struct {
	// NotOlderThan is the least revision the state may have; zero asks for a
	// consistent read, at least the newest committed when the request arrived.
	NotOlderThan Revision
	// Continue is the token of the page before, empty for the first page. It pins
	// the revision, so NotOlderThan counts for the first page only.
	Continue string
}

// Page is one part of a list. All pages of a list show one revision.
type Page struct {
	// Revision is the list's. Invariant: > 0.
	Revision Revision
	// Objects are in no particular order, and belong to the caller.
	Objects []Object
	// Withheld are the objects of the page that can't be taken, and why: one without
	// a name or a revision, one that is too long. Nothing is known of such an object,
	// so that it is not part of the state; but it is no reason to know nothing of the
	// others either.
	Withheld []*Failure
	// Continue is the token of the next page, empty on the last.
	Continue string
	// Remaining is the server's estimate of what follows this page, 0 if unknown.
	Remaining int64
}

// Watch is an open piece of history.
type Watch interface {
	// Next blocks for the next batch: everything that is at hand, within a bound,
	// in whole revisions, starting where the one before ended. Changes have no
	// Prior, and Added or Modified as the source calls them. Errors are *Failure;
	// after an error every further call returns the same one. Not for concurrent use.
	Next() (Batch, error)
	// Close ends the watch and frees what it holds; a blocked Next returns. It may
	// be called more than once and from any goroutine.
	Close()
}
