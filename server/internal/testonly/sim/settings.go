package sim

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Settings are the parameters of a schedule.
type Settings struct {
	Processes int
	Keys      []keepwatch.Key
	PageSize  int
	// Lags are the delays of the replicas behind the source's address.
	Lags []time.Duration
	// Bookmarks is the time between two bookmarks, Idle the client's idle timeout.
	Bookmarks, Idle time.Duration
	Versions        bool
	Paged           bool
	// Probes is reflector.Options.ProbeAfterOutage.
	Probes bool
	// Startup is reflector.Options.StartupDeadline.
	Startup time.Duration
	Seed    uint64
	Store   store.Options
	// Name is the name that the consumer of a namespace selects, empty for all.
	Name string
	// Informer is how an informer reads the source, empty if there is none. Rejects makes its
	// transform reject the objects that are not red.
	Informer Reading
	Rejects  bool
}

// objectSize is the size of every object in the store's bounds.
const objectSize = 100

func setup(d *Director) Settings {
	names := []keepwatch.Key{
		{Namespace: "ns1", Name: "a"}, {Namespace: "ns11", Name: "a"}, {Namespace: "ns1", Name: "b"}, {Name: "c"},
		{Namespace: "ns1", Name: "c"}, {Namespace: "ns-1", Name: "b"}, {Namespace: "ns1", Name: "d"},
		{Namespace: "ns2", Name: "a"},
	}
	some := func(name string, n int) bool { return d.Setup(name, n) > 0 }
	s := Settings{
		Processes: 1 + d.Setup("twin", 8)/6,
		Keys:      names[:2+d.Setup("keys", len(names)-1)],
		PageSize:  1 + d.Setup("page-size", 4),
		Lags: []time.Duration{
			19 * time.Nanosecond,
			time.Duration(d.Setup("lag", 40))*500*time.Millisecond + 23*time.Nanosecond,
		},
		Versions: some("versions", 3),
		Paged:    some("paged", 3),
		Startup:  -1,
		Seed:     1 + uint64(d.Setup("jitter", 256)),
		Store:    store.Options{Size: func(keepwatch.Object) int { return objectSize }},
	}
	s = s.calm()
	if d.Setup("brisk", 4) == 3 {
		// A rewind is detected while many writes are left.
		s.Bookmarks, s.Idle = 10*time.Second+409*time.Nanosecond, 21*time.Second+311*time.Nanosecond
	}
	if some("name", 2) {
		s.Name = "a"
	}
	if some("impatient", 6) {
		s.Startup = 0
	}
	s.Store.WindowBytes = int64(d.Setup("window-bytes", 8)) * 1000 % 7000
	s.Store.WindowAge = time.Duration(d.Setup("window-age", 4)) * 20 * time.Second
	s.Store.Tombstones = 3 * (d.Setup("tombstones", 4))
	s.Store.TombstoneBytes = int64(d.Setup("tombstone-bytes", 4)) * 300
	if some("slim", 2) {
		s.Store.Slim = slim
	}
	switch d.Setup("informer", 8) {
	case 6:
		s.Informer = ByClient
	case 7:
		s.Informer = Directly
	}
	s.Rejects = some("rejects", 2)
	s.Probes = some("probes", 2)
	return s
}

// calm returns the settings with an API server's bookmarks and a client's idle timeout.
func (s Settings) calm() Settings {
	s.Bookmarks, s.Idle = 60*time.Second+401*time.Nanosecond, 130*time.Second+307*time.Nanosecond
	return s
}
