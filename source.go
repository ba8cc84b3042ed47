package keepwatch

import "context"

// Source lists and watches one resource, or the part of it that a selector of the
// source matches. A Source decides nothing: it returns every error as a *[Failure], and
// the reflector gives the verdict.
//
// One reflector uses a Source at a time. It reads the next page while its target stores
// one, so that List runs beside the target. A Source's methods start no goroutine that
// outlives the call, except the goroutines that a returned [Watch] owns until its Close.
type Source interface {
	// List reads one page, and returns when ctx is done. Errors are *Failure.
	List(ctx context.Context, req ListRequest) (Page, error)

	// StreamList reads the whole state through a watch (KEP-3157). It calls emit with
	// bounded slices of the state as they arrive, and returns the state's revision and
	// the watch, which continues there. It fails with [StreamingListUnsupported] when the
	// source does not offer streaming lists or ends one early; the caller discards what
	// was emitted before a failure. An error of emit is returned unchanged; all
	// others are *Failure, and say by [Failure.Accepted] that the source had begun to answer.
	StreamList(ctx context.Context, notOlderThan Revision, emit func([]Object) error) (Revision, Watch, error)

	// Newest returns the newest committed revision, by a consistent read that is cheap
	// for the source. Errors are *Failure.
	Newest(ctx context.Context) (Revision, error)

	// Unchanged returns nil if the resource did not change after from up to to, which is a
	// revision that Newest has returned: other resources may have changed. It fails with
	// [Silent] if the resource has changed, and with [RevisionTooLarge] if the source does not
	// have to any more, because it was restored from a backup. It may cost as much as a list of metadata; the
	// reflector asks only after watches were silent. Errors are *Failure.
	Unchanged(ctx context.Context, from, to Revision) error

	// Watch opens a watch of the history after from. All its changes are above from. Cancelling ctx closes it. Errors are
	// *Failure.
	Watch(ctx context.Context, from Revision) (Watch, error)
}

// ListRequest asks for one page of a list.
type ListRequest struct {
	// NotOlderThan is the lowest revision that the list may show. Zero asks for a
	// consistent read: at least the newest revision when the request arrived.
	NotOlderThan Revision
	// Continue is the previous page's token, empty for the first page. It determines
	// the revision, so NotOlderThan applies to the first page only.
	Continue string
	// Whole asks for the rest of the list in one page, because lists in pages have started over
	// again and again. A source may ignore it.
	Whole bool
}

// Page is one part of a list. All pages of a list show one revision.
type Page struct {
	// Revision is the list's. Invariant: > 0.
	Revision Revision
	// Objects are in no particular order, and belong to the caller. No two pages of a list begin
	// with the same object.
	Objects []Object
	// Skipped has one failure for each object of the page that could not be read: it has
	// no name or no revision, or is too long. The list is complete except for them.
	Skipped []*Failure
	// Continue is the token of the next page, empty on the last. No two pages of a list have
	// the same.
	Continue string
	// Remaining is the server's estimate of the objects after this page, 0 if unknown.
	Remaining int64
}

// Watch delivers a source's history from a revision on.
type Watch interface {
	// Next returns the next batch and blocks until there is one. A batch has all changes
	// that are available, up to a bound, in whole revisions, and begins where the last one
	// ended. Its changes have no Prior, and the type that the source sent. Errors are
	// *Failure, and after an error every call returns the same one. Next must not be
	// called concurrently.
	Next() (Batch, error)
	// Close ends the watch and frees its connection; a blocked Next returns. It may be
	// called more than once and from any goroutine.
	Close()
}
