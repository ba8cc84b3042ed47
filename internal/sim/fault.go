package sim

import "github.com/keepwatch/keepwatch"

// Point is a place at which an actor decides. The set is closed.
type Point string

const (
	AtSetup    Point = "setup"    // what the schedule is like: once for each parameter
	AtWrite    Point = "write"    // the writer's next write
	AtSystem   Point = "system"   // what happens to the cluster and to processes
	AtList     Point = "list"     // the first page of a list
	AtPage     Point = "page"     // a later page
	AtStream   Point = "stream"   // a streaming list
	AtNewest   Point = "newest"   // the newest revision
	AtOpen     Point = "open"     // a watch is opened
	AtFrame    Point = "frame"    // a watch has something to say
	AtBookmark Point = "bookmark" // a bookmark is due
	AtTurn     Point = "turn"     // a consumer's next call
)

// Fault is what can be decided at a point instead of the usual.
type Fault struct {
	Name string
	// Weight against the other faults of the point.
	Weight int
	// Kind is the failure that it shows as; 0 if none.
	Kind keepwatch.FailureKind
	// Lie: it breaks the source's contract, so that what is told may be wrong until
	// it is noticed.
	Lie bool
}

// refusals are the answers that every request can get.
var refusals = []Fault{
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

func with(more ...Fault) []Fault { return append(more, refusals...) }

// Faults lists what can be decided at each point, beside nothing.
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
		{Name: "pause", Weight: 3},
		{Name: "drain", Weight: 2, Kind: keepwatch.Unreachable}, // the API server shuts down, another takes over
		{Name: "restart-empty", Weight: 2},
		{Name: "restart-kept", Weight: 2},
		{Name: "restore", Weight: 2},
		{Name: "restore-blind", Weight: 1, Lie: true},
	},
	AtList: with(
		Fault{Name: "stale", Weight: 3, Kind: keepwatch.StaleReplica},
		Fault{Name: "stale-consistent", Weight: 1, Lie: true},
		Fault{Name: "truncated", Weight: 2, Kind: keepwatch.Undecodable},
		Fault{Name: "no-revision", Weight: 1, Kind: keepwatch.ProtocolViolation},
		Fault{Name: "too-large", Weight: 1, Kind: keepwatch.RevisionTooLarge},
		Fault{Name: "expired", Weight: 1, Kind: keepwatch.Expired},
		Fault{Name: "withheld", Weight: 2}, // there are objects that can't be taken
	),
	AtPage: with(
		Fault{Name: "expired", Weight: 4, Kind: keepwatch.Expired},
		Fault{Name: "duplicate", Weight: 2},
		Fault{Name: "withheld", Weight: 2},
		Fault{Name: "other-revision", Weight: 1, Kind: keepwatch.ProtocolViolation},
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
	),
	AtFrame: {
		{Name: "one", Weight: 8}, // what is at hand comes in pieces
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
		{Name: "duplicate", Weight: 2, Lie: true},
		{Name: "reorder", Weight: 1, Lie: true},
		{Name: "lying-bookmark", Weight: 1, Lie: true},
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
		{Name: "cancel", Weight: 2},  // while it waits or is being handed something
		{Name: "timeout", Weight: 2}, // wait for so long only, do something else, call again
		{Name: "resume", Weight: 3},  // end, and go on at the cursor
		{Name: "behind", Weight: 1},  // go on at an older cursor
		{Name: "elsewhere", Weight: 1},
		{Name: "anew", Weight: 1},
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
