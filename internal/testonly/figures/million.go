package figures

// The tables that the goals show.
var (
	lists   = page{growthPage, "table growth ", "[lists](growth.md#lists)"}
	byNode  = page{growthPage, "table nodes ", "[watchers by node](growth.md#watchers-by-node)"}
	history = page{growthPage, "table overload-history ",
		"[overload](growth.md#more-events-than-the-machine-can-deliver)"}
	bounded   = page{growthPage, "table overload ", history.link}
	smallSync = page{growthPage, "table small-sync ", "[small objects](growth.md#many-small-objects)"}
	firsts    = page{notes, "table first-lists ",
		"[first lists](notes-performance.md#first-lists-and-an-idle-watcher)"}
	idles       = page{notes, "table idle-watchers ", firsts.link}
	idleRoutine = page{notes, "table idle-watchers-routine ", firsts.link}
	storage     = page{notes, "### Memory of a storage", "[a storage](notes-performance.md#memory-of-a-storage)"}
	stores      = page{notes, "table store ", "[store](notes-performance.md#the-store)"}
	serveFanOut = page{performance, "table serve-fanout ", "[fan-out](#the-server-beside-kube-apiserver)"}
	serveStart  = page{performance, "table serve-start ", "[start](#the-server-beside-kube-apiserver)"}
	ownStart    = page{performance, "table kubernetes-start ", "[start](#keepwatch-apiserver-beside-its-other-mode)"}
	sinks       = page{performance, "table sync ", "[sinks](#the-sinks-of-keepwatch-sync)"}
	story       = page{performance, "## A control plane on", "[control plane](#a-control-plane-on-keepwatch-apiserver)"}
	clients     = page{"docs/performance-clients.md", "",
		"[informers](performance-clients.md#informers-beside-client-gos)"}
	clientsJSON = page{clients.file, "| JSON: client-go", clients.link}
	operators   = page{clients.file, "## Operators",
		"[operators](performance-clients.md#operators-beside-controller-runtime)"}
)

// million are the goals for a million objects.
var million = []goal{
	{"LIST of everything, by pages of 500, by a selector of 10 % and of 0.1 %, of a namespace", "CPU ≤ 0.15×", []shown{
		{"160,000 objects:", lists, "LIST JSON", "160,000", 0.15},
		{"pages", lists, "LIST JSON, pages of 500", "160,000", 0.15},
		{"10 %", lists, "LIST JSON, selector of 10 %", "160,000", 0.15},
		{"0.1 %", lists, "LIST JSON, selector of 0.1 %", "160,000", 0.15},
		{"a namespace", lists, "LIST JSON, a namespace of 1 %", "160,000", 0.15},
		{"exponent of growth, 0.1 %:", lists, "LIST JSON, selector of 0.1 %", "exponent", 0}},
		"Reached beside v1.37.2. v1.38's lists are not measured: its beta does not build from the module proxy"},
	{"memory of an object", "≤ 1.3× of its bytes; ≤ 2.2× after lists in two encodings", []shown{
		{"bytes of a pod in etcd", storage, "a pod of 50,000", "bytes in etcd", 0},
		{"heap", storage, "a pod of 50,000", "heap, encoded", 0},
		{"RSS of `serve` with 50,000", serveStart, "… RSS; after lists in each encoding", "figure", 0}},
		"Heap of pods: reached. Missed by RSS, [which has garbage, the history, and 0.65 KB for each small object]" +
			"(notes-performance.md#memory-of-a-storage)"},
	{"first LIST after a start: JSON, protobuf, gzip, Table", "CPU ≤ 0.6×, growth of memory ≤ 1.2×", []shown{
		{"CPU", firsts, "first LIST JSON", "server CPU", 0.6},
		{"", firsts, "first LIST protobuf", "server CPU", 0.6},
		{"", firsts, "first LIST JSON gzip", "server CPU", 0.6},
		{"", firsts, "first LIST Table", "server CPU", 0.6},
		{"growth", firsts, "first LIST JSON", "peak RSS growth", 1.2},
		{"", firsts, "first LIST protobuf", "peak RSS growth", 1.2},
		{"", firsts, "first LIST JSON gzip", "peak RSS growth", 1.2},
		{"", firsts, "first LIST Table", "peak RSS growth", 1.2}},
		"gzip and Table miss: [the server's own informers read " +
			"meanwhile](notes-performance.md#why-its-targets-are-missed). " +
			"The growth with gzip was not examined"},
	{"ready after a start", "≤ 0.3× (`serve`), ≤ 0.5× (`keepwatch-apiserver`)", []shown{
		{"50,000 pods of 9 KB: `serve`", serveStart, "with the data, until ready", "figure", 0.3},
		{"`keepwatch-apiserver`", ownStart, "start with the data, until ready", "figure", 0}},
		"`serve`: reached. `keepwatch-apiserver`: missed, [its own informers decode all " +
			"pods](notes-performance.md#why-its-targets-are-missed)"},
	{"10,000 watchers by node, 500 writes a second", "CPU independent of others' watchers; p99 ≤ 100 ms", []shown{
		{"100 watchers:", byNode, "100 watchers by node", "server CPU of an update", 0},
		{"10,000:", byNode, "10,000 watchers by node", "server CPU of an update", 0},
		{"p99", byNode, "10,000 watchers by node", "p99", 0}}, "Reached"},
	{"fan-out to 100 and 1,000 watchers of everything", "CPU of an event ≤ 0.5×", []shown{
		{"100 × 200/s", serveFanOut, "100 × 200/s", "server CPU of an event", 0.5},
		{"1,000 × 50/s", serveFanOut, "1,000 × 50/s", "server CPU of an event", 0.5},
		{"1,000 × 200/s", serveFanOut, "1,000 × 200/s", "server CPU of an event", 0.5},
		{"of a plain Go server", serveFanOut, "100 × 200/s", "CPU of plain Go", 0}},
		"Missed below 200/s: [a frame, a TLS record and a system call for each " +
			"watcher](notes-performance.md#the-server)"},
	{"100 watchers × 1,000/s, 1,000 × 200/s", "nobody cut off, and as many events as plain Go", []shown{
		{"64 MiB of history:", bounded, "100 watchers × 1000/s", "… plain Go", 0},
		{"", bounded, "1000 watchers × 200/s", "… plain Go", 0},
		{"1 GiB:", history, "100 watchers × 1000/s", "… plain Go", 0},
		{"", history, "1000 watchers × 200/s", "… plain Go", 0}},
		"Reached with `--watch-history=1Gi`. 64 MiB hold the events of some seconds; then a watcher gets the difference"},
	{"an idle watcher", "≤ 10 KB", []shown{
		{"`keepwatch-apiserver`", idles, "idle watchers", "memory of one", 0},
		{"on small stacks, as `serve`", idleRoutine, "idle watchers", "memory of one", 0}},
		"Missed: 8 to 16 KB are the goroutine's stack in the API server's filters, 6 KB net/http's; Keepwatch's " +
			"part is 1 KB"},
	{"restart with informers and watchers", "0 LISTs, the last live in 10 s", []shown{
		{"20 and 1,000, 50,000 pods of 9 KB:", serveStart,
			"restart with 20 informers and 1,000 watchers, until the last is live", "figure", 0},
		{"LISTs, streams", serveStart, "… LISTs, initial-event streams asked for", "figure", 0}},
		"Reached with 1,000 watchers"},
	{"informers beside client-go: one-line, `Direct`",
		"one-line ≤ 1.0× time, ≤ 0.7× heap; `Direct` ≤ 0.5× time with protobuf, ≤ 0.2× with JSON", []shown{
			{"50,000 pods of 9 KB, one-line:", clients, "… hook", "synced", 1},
			{"JSON", clientsJSON, "… hook", "synced", 1},
			{"heap", clients, "… hook", "heap per object", 0.7},
			{"`Direct`: protobuf", clients, "… direct", "synced", 0.5},
			{"JSON", clientsJSON, "… direct", "synced", 0.2},
			{"heap", clients, "… direct", "heap per object", 0.7}},
		"Missed: [client-go decodes for the one-line informer, and the server shares the " +
			"cores](notes-performance.md#informers)"},
	{"operator with progress in annotations", "≤ 1.0× of controller-runtime's time", []shown{
		{"", operators, "keepwatch, progress in annotations", "until all are handled", 0},
		{"in the status", operators, "keepwatch, progress in the status", "until all are handled", 0}},
		"Missed by one request of three: status and annotations are two requests. With the status, reached"},
	{"store, 1,000,000 objects: apply one event, get", "≤ 2× of client-go's indexer", []shown{
		{"apply", stores, "1,000,000 | apply one event", "keepwatch / client-go", 2},
		{"100 at once", stores, "1,000,000 | apply one event, 100 at once", "keepwatch / client-go", 2},
		{"get", stores, "1,000,000 | get", "keepwatch / client-go", 2}},
		"Missed: a path is copied for each change, which is the price of snapshots. What was tried is beside the " +
			"figures"},
	{"`keepwatch-apiserver`: a write with 1, 16 writers; a control plane", "CPU ≤ 0.85×; CPU and memory ≤ 0.75×",
		[]shown{
			{"a write with 1, 16, 64 writers:", ownStart,
				"CPU of a write with 1, 16, 64 writers ([all](notes-performance.md#keepwatch-apiserver))", "figure", 0},
			{"control plane, CPU:", story, "API server CPU, whole story", "upstream → keepwatch", 0},
			{"memory:", story, "API server peak memory", "upstream → keepwatch", 0}},
		"Missed: [5 % of a write's CPU is Keepwatch's, the rest " +
			"kube-apiserver's](notes-performance.md#why-its-targets-are-missed)"},
	{"sync into Postgres and files", "≥ 5,000/s, ≥ 20,000/s; memory ≤ 200 MB", []shown{
		{"Postgres, 50,000 pods of 9 KB: list", sinks, "Postgres 15", "first list", 0},
		{"changes", sinks, "Postgres 15", "changes", 0},
		{"files, changes", sinks, "files", "changes", 0},
		{"1,000,000 small ones, changes of a second of CPU", smallSync, "files", "… of its CPU", 0},
		{"memory", smallSync, "files", "own", 0}},
		"Memory: reached. The rates: [Postgres is at the limit of its process, files of JSON's " +
			"reading](notes-performance.md#the-sinks)"},
}
