package differential

import (
	"net/http"
	"strings"
)

// Exchange is a request and what both servers said to it, when the world was so.
type Exchange struct {
	Request      Request
	Theirs, Ours Answer
	World        Moment
}

// Moment is what of a world decides which revisions must be known.
type Moment struct {
	// Origin is where both servers' history begins, Compacted where etcd's does.
	Origin, Compacted int64
	Revision          int64
}

// exception permits a difference, for a reason that docs/verification.md tells.
type exception struct {
	name    string
	permits func(Exchange, Difference) bool
}

// exceptions is every difference that is meant to be.
var exceptions = []exception{
	{
		name: "ours still has the history that theirs answers 410 for",
		permits: func(e Exchange, _ Difference) bool {
			return e.Theirs.expired() && !e.Ours.expired() && e.Ours.Status == http.StatusOK
		},
	},
	{
		// The test compacts etcd behind both servers' backs.
		name: "theirs still has a state that etcd was made to forget",
		permits: func(e Exchange, _ Difference) bool {
			n := e.Request.revision()
			return e.Ours.expired() && !e.Theirs.expired() && 0 < n && n < e.World.Compacted
		},
	},
	{
		// Theirs would wait for it without a word: kubernetes #107457.
		name: "ours says that a watch's revision is in the future",
		permits: func(e Exchange, d Difference) bool {
			return e.Request.Stream && e.Request.revision() > e.World.Revision && strings.Contains(d.Ours, "Too large resource version")
		},
	},
	{
		// Kubernetes 1.37, whose library ours is built on, does that; 1.36 doesn't.
		name: "ours compresses streaming lists",
		permits: func(e Exchange, d Difference) bool {
			return e.Request.Stream && d.Theirs == "" && (d.Where == "header Content-Encoding" && d.Ours == "gzip" ||
				d.Where == "header Vary" && d.Ours == "Accept-Encoding")
		},
	},
}

// laterStart excuses a server that has only the history since its start.
var laterStart = exception{
	name: "ours started later",
	permits: func(e Exchange, _ Difference) bool {
		return e.Ours.expired() && e.Request.Stream && e.Request.revision() < e.World.Origin
	},
}

// expired says whether an answer is 410, as its status or as its only event.
func (a Answer) expired() bool {
	if a.Streamed {
		return len(a.Events) == 1 && a.Events[0].Type == "ERROR" && strings.Contains(string(a.Events[0].Object), "too old resource version")
	}
	return a.Status == http.StatusGone
}
