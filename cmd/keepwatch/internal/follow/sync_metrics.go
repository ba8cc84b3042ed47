package follow

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/serving"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// syncEndpoint serves /metrics, /readyz and /healthz of a process. Its methods may be called concurrently.
type syncEndpoint struct {
	maxLag   time.Duration
	registry *prometheus.Registry
	sinks    []string // their names

	mu        sync.Mutex
	standby   bool                          // the process waits until it is elected
	transfers map[string]*transfer.Transfer // by the name of the sink; those that have begun
}

func newSyncEndpoint(sinks []*sinkSettings, maxLag time.Duration) *syncEndpoint {
	e := &syncEndpoint{maxLag: maxLag, registry: prometheus.NewRegistry(), transfers: map[string]*transfer.Transfer{}}
	e.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, s := range sinks {
		e.sinks = append(e.sinks, s.Name)
	}
	return e
}

// add adds the transfer into a sink.
func (e *syncEndpoint) add(sink string, t *transfer.Transfer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.transfers[sink] = t
	prometheus.WrapRegistererWith(prometheus.Labels{"sink": sink}, e.registry).MustRegister(syncCollector{t})
}

func (e *syncEndpoint) setStandby(standby bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.standby = standby
}

// notReady returns why not all resources are complete and current in every sink, or "".
func (e *syncEndpoint) notReady() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.standby {
		return "it waits until it is elected"
	}
	for _, name := range e.sinks {
		reason := "the resource types are not known yet"
		if t := e.transfers[name]; t != nil {
			reason = notReady(t.Status(), time.Now(), e.maxLag)
		}
		if reason != "" {
			return name + ": " + reason
		}
	}
	return ""
}

// serve serves on the address of --metrics-bind-address until stop is called.
func (e *syncEndpoint) serve(address string) (stop func(), err error) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", healthy)
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if reason := e.notReady(); reason != "" {
			http.Error(w, reason, http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return serving.ServeMetrics(address, mux)
}

func healthy(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

// notReady returns why not all resources are complete and current, or "".
func notReady(s transfer.Status, now time.Time, maxLag time.Duration) string {
	for _, r := range s.Resources {
		confirmed := r.Reflector.LastConfirmed
		switch _, complete := s.Cuts[r.Line]; {
		case r.Reflector.State == "":
			return fmt.Sprintf("%s is not complete: the sink is not open", r.ID.Resource)
		case confirmed.IsZero() || !complete:
			return fmt.Sprintf("%s is not complete: %s", r.ID.Resource, r.Reflector.State)
		case now.Sub(confirmed) > maxLag:
			return fmt.Sprintf("%s was not confirmed to be current for %v", r.ID.Resource, now.Sub(confirmed).Round(time.Second))
		}
	}
	return ""
}

var (
	ofResource = []string{"resource", "namespace"}

	syncEvents   = syncMetric("events_total", "Events that were stored, by type.", append(ofResource, "type")...)
	syncBytes    = syncMetric("object_bytes_total", "Bytes of the objects that were stored, as JSON.", ofResource...)
	syncObjects  = syncMetric("objects", "Current objects.", ofResource...)
	syncRevision = syncMetric("revision", "Revision up to which all changes are stored.", ofResource...)
	syncBehind   = syncMetric("lag_revisions",
		"Difference from the greatest revision that was received of the resources in the same etcd.", ofResource...)
	syncLag = syncMetric("lag_seconds", "Time since the server confirmed that the stored state is current.",
		ofResource...)
	syncGaps       = syncMetric("gaps_total", "Declared gaps, by reason.", append(ofResource, "reason")...)
	syncReconnects = syncMetric("reconnects_total", "Watches that were opened again, by the failure before.",
		append(ofResource, "reason")...)
	syncRelists = syncMetric("relists_total", "Lists after the first one, by the failure before.",
		append(ofResource, "reason")...)
	syncBatches = syncMetric("batches_total", "Transactions that were committed.")
	syncRetries = syncMetric("retries_total", "Errors of the sink after which another attempt followed.")
	syncDead    = syncMetric("dead_letters_total",
		"Refusals of events that the sink does not repeat. An event of a batch that is repeated is refused again.")
	syncExpired = syncMetric("expired_states_total",
		"States that the sink has deleted: by age, of --retention, by size, of --max-size, or by thinning, of --thin.",
		"reason")
	syncExcess      = syncMetric("excess_bytes", "Bytes by which the current states alone are more than --max-size.")
	syncBehindClock = syncMetric("clock_behind_seconds",
		"Time by which the clock is behind the newest transaction, which all transactions have until it has reached it.")
	syncComplete = syncMetric("complete", "1 if all resources of one etcd are complete at one revision, else 0.", "line")
	syncCut      = syncMetric("complete_revision", "Revision at which all resources of one etcd are complete.", "line")
)

func syncMetric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("keepwatch_sync_"+name, help, append([]string{}, labels...), nil)
}

// syncCollector collects the metrics of a transfer.
type syncCollector struct{ transfer *transfer.Transfer }

func (c syncCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

func (c syncCollector) Collect(ch chan<- prometheus.Metric) { collectStatus(c.transfer.Status(), ch) }

func collectStatus(s transfer.Status, ch chan<- prometheus.Metric) {
	newest := map[int]keepwatch.Revision{}
	for _, r := range s.Resources {
		newest[r.Line] = max(newest[r.Line], r.Progress.Cursor, r.Reflector.Revision)
	}
	for _, r := range s.Resources {
		send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, kind, value, append([]string{r.ID.Resource, r.ID.Namespace}, labels...)...)
		}
		for _, kind := range []keepwatch.ChangeType{keepwatch.Added, keepwatch.Modified, keepwatch.Deleted} {
			send(syncEvents, prometheus.CounterValue, float64(r.Events[kind]), kind.String())
		}
		for _, reason := range []keepwatch.GapReason{keepwatch.GapExpired, keepwatch.GapDowntime, keepwatch.GapRewind} {
			send(syncGaps, prometheus.CounterValue, float64(r.Gaps[reason]), string(reason))
		}
		for reason, n := range withZeros(r.Reflector.Reconnects, reconnecting) {
			send(syncReconnects, prometheus.CounterValue, float64(n), reason.String())
		}
		for reason, n := range withZeros(r.Reflector.Relists, relisting) {
			send(syncRelists, prometheus.CounterValue, float64(n), reason.String())
		}
		send(syncBytes, prometheus.CounterValue, float64(r.Bytes))
		send(syncObjects, prometheus.GaugeValue, float64(r.Objects))
		send(syncRevision, prometheus.GaugeValue, float64(r.Progress.Cursor))
		send(syncBehind, prometheus.GaugeValue, float64(newest[r.Line]-r.Progress.Cursor))
		if at := r.Reflector.LastConfirmed; !at.IsZero() && !s.Standby { // the lag of a standby is another process's
			send(syncLag, prometheus.GaugeValue, time.Since(at).Seconds())
		}
	}
	for line := range newest {
		complete := 0.0
		if cut, ok := s.Cuts[line]; ok {
			complete = 1
			ch <- prometheus.MustNewConstMetric(syncCut, prometheus.GaugeValue, float64(cut.Revision), strconv.Itoa(line))
		}
		ch <- prometheus.MustNewConstMetric(syncComplete, prometheus.GaugeValue, complete, strconv.Itoa(line))
	}
	ch <- prometheus.MustNewConstMetric(syncBatches, prometheus.CounterValue, float64(s.Batches))
	ch <- prometheus.MustNewConstMetric(syncRetries, prometheus.CounterValue, float64(s.Retries))
	ch <- prometheus.MustNewConstMetric(syncDead, prometheus.CounterValue, float64(s.DeadLetters))
	for _, reason := range []sink.ExpiryReason{sink.ExpiredByAge, sink.ExpiredBySize, sink.ExpiredByThinning} {
		ch <- prometheus.MustNewConstMetric(syncExpired, prometheus.CounterValue, float64(s.Expired[reason]), string(reason))
	}
	ch <- prometheus.MustNewConstMetric(syncBehindClock, prometheus.GaugeValue, s.Behind().Seconds())
	ch <- prometheus.MustNewConstMetric(syncExcess, prometheus.GaugeValue, float64(s.Excess))
}

// The failures that outages and restarts of a server cause.
var (
	reconnecting = []keepwatch.FailureKind{
		keepwatch.Ended, keepwatch.Idle, keepwatch.Unreachable, keepwatch.Throttled, keepwatch.ServerError,
	}
	relisting = []keepwatch.FailureKind{keepwatch.Expired, keepwatch.Silent, keepwatch.Redefined, keepwatch.Rewound}
)

// withZeros returns counts with an entry for each of some kinds, 0 if it has none: Prometheus does not see the first
// increase of a counter that appears with it.
func withZeros(counts map[keepwatch.FailureKind]uint64,
	kinds []keepwatch.FailureKind) map[keepwatch.FailureKind]uint64 {
	all := map[keepwatch.FailureKind]uint64{}
	for _, kind := range kinds {
		all[kind] = 0
	}
	maps.Copy(all, counts)
	return all
}
