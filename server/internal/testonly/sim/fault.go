package sim

import "github.com/keepwatch/keepwatch"

// Point is a kind of decision. The set is closed.
type Point string

const (
	AtSetup    Point = "setup"    // a parameter of the schedule
	AtWrite    Point = "write"    // the writer's next write
	AtSystem   Point = "system"   // an event of the cluster or of a process
	AtList     Point = "list"     // the first page of a list
	AtPage     Point = "page"     // a later page
	AtStream   Point = "stream"   // a streaming list
	AtNewest   Point = "newest"   // the request for the newest revision
	AtOpen     Point = "open"     // the opening of a watch
	AtFrame    Point = "frame"    // a watch has events to send
	AtBookmark Point = "bookmark" // a bookmark is due
	AtTurn     Point = "turn"     // a consumer's next call
)

// Fault is a decision that differs from the default.
type Fault struct {
	Name string
	// Weight is relative to the point's other faults.
	Weight int
	// Kind is the kind of the failure that the client receives, 0 if none.
	Kind keepwatch.FailureKind
	// Breach: the fault breaks the source's contract, so that deliveries may be wrong until
	// the client detects it.
	Breach bool
}

// requestFaults are the faults of every request.
var requestFaults = []Fault{
	{Name: "unreachable", Weight: 3, Kind: keepwatch.Unreachable},
	{Name: "throttled", Weight: 2, Kind: keepwatch.Throttled},
	{Name: "server-error", Weight: 2, Kind: keepwatch.ServerError},
	{Name: "unknown-status", Weight: 1, Kind: keepwatch.UnknownStatus},
	{Name: "storage-read", Weight: 1, Kind: keepwatch.StorageRead},
	{Name: "untrusted", Weight: 1, Kind: keepwatch.Untrusted},
	{Name: "unauthorized", Weight: 1, Kind: keepwatch.Unauthorized},
	{Name: "forbidden", Weight: 1, Kind: keepwatch.Forbidden},
	{Name: "absent", Weight: 1, Kind: keepwatch.Absent},
	{Name: "rejected", Weight: 1, Kind: keepwatch.Rejected},
	{Name: "slow", Weight: 3},
}

func with(more ...Fault) []Fault { return append(more, requestFaults...) }

// Faults lists the faults of each point.
var Faults = map[Point][]Fault{
	AtWrite: {
		{Name: "put", Weight: 12},
		{Name: "delete", Weight: 5},
		{Name: "again", Weight: 2}, // delete and create the same name
		{Name: "transaction", Weight: 2},
		{Name: "foreign", Weight: 2},
		{Name: "burst", Weight: 1},
	},
	AtSystem: {
		{Name: "compact", Weight: 6},
		{Name: "compaction-burst", Weight: 2}, // each write is compacted at once, for a while
		{Name: "replica", Weight: 3},
		{Name: "redefine", Weight: 2, Kind: keepwatch.Redefined}, // lists show other contents at equal revisions
		{Name: "pause", Weight: 3},
		{Name: "drain", Weight: 2, Kind: keepwatch.Unreachable}, // the API server shuts down, another takes over
		{Name: "restart-empty", Weight: 2},
		{Name: "restart-with-store", Weight: 2},
		{Name: "restore", Weight: 2},
		{Name: "restore-blind", Weight: 1, Breach: true},
		{Name: "silence", Weight: 1, Kind: keepwatch.Silent}, // from now on watches deliver nothing
	},
	AtList: with(
		Fault{Name: "stale", Weight: 3, Kind: keepwatch.StaleReplica},
		Fault{Name: "stale-consistent", Weight: 1, Breach: true},
		Fault{Name: "truncated", Weight: 2, Kind: keepwatch.Undecodable},
		Fault{Name: "no-revision", Weight: 1, Kind: keepwatch.ProtocolViolation},
		Fault{Name: "unversioned", Weight: 1, Kind: keepwatch.Unversioned},
		Fault{Name: "too-large", Weight: 1, Kind: keepwatch.RevisionTooLarge},
		Fault{Name: "expired", Weight: 1, Kind: keepwatch.Expired},
		Fault{Name: "skipped", Weight: 2}, // the page has objects that can't be read
	),
	AtPage: with(
		Fault{Name: "expired", Weight: 4, Kind: keepwatch.Expired},
		Fault{Name: "duplicate", Weight: 2},
		Fault{Name: "skipped", Weight: 2},
		Fault{Name: "other-revision", Weight: 1, Kind: keepwatch.ProtocolViolation},
		// the page before it again, until the list starts over
		Fault{Name: "same-page", Weight: 1, Kind: keepwatch.ProtocolViolation},
		Fault{Name: "truncated", Weight: 2, Kind: keepwatch.Undecodable},
	),
	AtStream: with(
		Fault{Name: "unsupported", Weight: 8, Kind: keepwatch.StreamingListUnsupported},
		Fault{Name: "no-end", Weight: 3, Kind: keepwatch.StreamingListUnsupported},
		Fault{Name: "cut", Weight: 3, Kind: keepwatch.StreamingListUnsupported},
	),
	AtNewest: with(),
	AtOpen: with(
		Fault{Name: "expired", Weight: 4, Kind: keepwatch.Expired},
		Fault{Name: "expired-inside", Weight: 4, Kind: keepwatch.Expired},
		Fault{Name: "too-large", Weight: 1, Kind: keepwatch.RevisionTooLarge},
		Fault{Name: "from-scratch", Weight: 2, Kind: keepwatch.ProtocolViolation}, // the watch begins with what exists
	),
	AtFrame: {
		{Name: "one", Weight: 8}, // the available events arrive in pieces
		{Name: "ended", Weight: 4, Kind: keepwatch.Ended},
		{Name: "cut", Weight: 8, Kind: keepwatch.Unreachable},
		{Name: "expired", Weight: 4, Kind: keepwatch.Expired},
		{Name: "server-error", Weight: 2, Kind: keepwatch.ServerError},
		{Name: "storage-read", Weight: 1, Kind: keepwatch.StorageRead},
		{Name: "unknown-status", Weight: 1, Kind: keepwatch.UnknownStatus},
		{Name: "stall", Weight: 2, Kind: keepwatch.Idle},
		{Name: "torn", Weight: 2, Kind: keepwatch.Undecodable},
		{Name: "garbage", Weight: 1, Kind: keepwatch.Undecodable},
		{Name: "unknown-type", Weight: 1, Kind: keepwatch.ProtocolViolation},
		{Name: "no-revision", Weight: 1, Kind: keepwatch.ProtocolViolation},
		{Name: "hole", Weight: 1, Kind: keepwatch.ProtocolViolation},
		{Name: "duplicate", Weight: 2, Breach: true},
		{Name: "reorder", Weight: 1, Breach: true},
		{Name: "lying-bookmark", Weight: 1, Breach: true},
		{Name: "slow", Weight: 2},
	},
	AtBookmark: {
		{Name: "late", Weight: 3},
		{Name: "absent", Weight: 3},
		{Name: "stall", Weight: 1, Kind: keepwatch.Idle},
		{Name: "cut", Weight: 2, Kind: keepwatch.Unreachable},
		{Name: "back", Weight: 1, Kind: keepwatch.ProtocolViolation},
	},
	AtTurn: {
		{Name: "slow", Weight: 6},
		{Name: "cancel", Weight: 2},  // while it waits or receives a delivery
		{Name: "timeout", Weight: 2}, // end the call after a time, sleep, call again
		{Name: "resume", Weight: 3},  // end, and resume at the cursor
		{Name: "behind", Weight: 1},  // resume at an older cursor
		{Name: "elsewhere", Weight: 1},
		{Name: "reset", Weight: 1},
	},
}

// fault finds a fault by its name.
func fault(p Point, name string) Fault {
	for _, f := range Faults[p] {
		if f.Name == name {
			return f
		}
	}
	return Fault{Name: name}
}
