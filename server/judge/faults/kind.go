package faults

// kind is what a fault does. Plans name faults by it.
type kind string

const (
	none kind = ""

	// Before the request is forwarded.
	answer  kind = "status"
	refuse  kind = "refuse"
	outage  kind = "outage"
	expired kind = "expired-certificate"
	delay   kind = "delay"
	stale   kind = "stale"
	rewind  kind = "rewind"
	same    kind = "same-page"
	scratch kind = "from-scratch"

	// Of any answer's body.
	cut      kind = "cut"
	reset    kind = "reset"
	stall    kind = "stall"
	halfOpen kind = "half-open"
	slow     kind = "slow"
	garbage  kind = "garbage"

	// Of a watch's frames.
	end           kind = "end"
	event         kind = "error-event"
	tear          kind = "tear"
	repeat        kind = "repeat"
	reorder       kind = "reorder"
	skip          kind = "skip"
	oversized     kind = "oversized"
	unknownType   kind = "unknown-type"
	earlyBookmark kind = "early-bookmark"
	lateBookmarks kind = "late-bookmarks"
	noBookmarks   kind = "no-bookmarks"
	noInitialEnd  kind = "no-initial-events-end"
)

// defaultSize is the size of oversized events, above client-go's limit of 16 MiB.
const defaultSize = 17 << 20

// Parameters of a rule, as bits.
type parameters int

const (
	withAfter parameters = 1 << iota
	withFor
	needsFor
	withStatus
	needsLag
	needsRate
	withSize
)

// description says which requests a kind of fault is for, and what a rule may and must say.
type description struct {
	classes    []Class // nil is every class but Write
	parameters parameters
	means      string // for people
}

var (
	lists     = []Class{List, Newest}
	watches   = []Class{Watch, StreamList}
	revisions = []Class{List, Newest, Watch, StreamList}
)

// kinds are the faults of plans.
var kinds = map[kind]description{
	answer:  {nil, withStatus, "answers with a status, and Retry-After if the rule has retryAfter"},
	refuse:  {nil, 0, "resets the connection without an answer"},
	outage:  {nil, withAfter | needsFor, "resets all connections, and refuses new ones"},
	expired: {nil, withAfter | needsFor, "resets all connections, and serves an expired certificate on new ones"},
	delay:   {nil, needsFor, "forwards the request later"},
	stale: {lists, needsLag,
		"answers a list with resourceVersion=0 or an older one with a state of the past, and a newer one with 504 ResourceVersionTooLarge"},
	rewind: {revisions, needsLag,
		"answers as a server that was restored from a backup: lists have a state of the past, newer revisions are too large"},

	same: {[]Class{ListPage}, 0,
		"answers the request for a further page with the first one, whose token is the same again"},

	scratch: {[]Class{Watch}, 0,
		"requests a watch without its resourceVersion, as a server that begins each watch with all that exists"},

	cut:      {nil, withAfter, "ends the answer without the end that HTTP requires"},
	reset:    {nil, withAfter, "resets the TCP connection"},
	stall:    {nil, withAfter | withFor, "forwards nothing more of this answer; the connection stays healthy"},
	halfOpen: {nil, withAfter | withFor, "sends and reads nothing on the connection, without closing it"},
	slow:     {nil, withAfter | needsRate, "sends rate bytes a second"},
	garbage:  {nil, withAfter, "adds a frame that cannot be decoded; another answer consists of it"},

	end:           {watches, withAfter, "ends the watch cleanly"},
	event:         {watches, withAfter | withStatus, "sends an ERROR event and ends the watch"},
	tear:          {watches, withAfter, "cuts the watch within a frame"},
	repeat:        {watches, withAfter, "sends the last frame again"},
	reorder:       {watches, withAfter, "exchanges the next two events"},
	skip:          {watches, withAfter, "drops the next event"},
	oversized:     {watches, withAfter | withSize, "extends the next event with white space to size bytes (17 MiB)"},
	unknownType:   {watches, withAfter, "sends a copy of the next event with an unknown type before it"},
	earlyBookmark: {watches, withAfter, "sends a bookmark with the next event's revision before it"},
	lateBookmarks: {watches, withAfter, "sends each bookmark behind the next event"},
	noBookmarks:   {watches, withAfter, "drops all bookmarks but the one that ends the initial events"},
	noInitialEnd:  {[]Class{StreamList}, withAfter, "drops the bookmark that ends the initial events"},
}
