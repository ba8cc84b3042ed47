package served

import (
	"fmt"
	"math"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
)

// Target is a target for one of keepwatch's figures.
type Target struct {
	Row, Measure string
	Goal         string // in words
	// met reports whether a line meets the target; judged is false where it does not apply.
	met func(r *Report, f *figures.Figure) (met, judged bool)
}

// verdict is what a figure says about its target, as it stands behind the goal.
type verdict string

const (
	met       verdict = ""
	missed    verdict = " (missed)"
	notJudged verdict = " (not judged)"
)

func (t Target) verdict(r *Report) verdict {
	f := r.run.Find(t.Row, t.Measure)
	if math.IsNaN(f.Value(Keepwatch)) {
		return missed // a row without a figure failed
	}
	switch ok, judged := t.met(r, f); {
	case !judged:
		return notJudged
	case ok:
		return met
	}
	return missed
}

// part is to be at most a factor of another's.
func part(row, measure string, of Contender, factor float64) Target {
	return Target{row, measure, fmt.Sprintf("≤ %.3g× %s", factor, of), func(_ *Report, f *figures.Figure) (bool, bool) {
		ratio := f.Ratio(of)
		return ratio <= factor, !math.IsNaN(ratio)
	}}
}

// multiple is to be at least a factor of another's.
func multiple(row, measure string, of Contender, factor float64) Target {
	return Target{row, measure, fmt.Sprintf("≥ %.3g× %s", factor, of), func(_ *Report, f *figures.Figure) (bool, bool) {
		ratio := f.Ratio(of)
		return ratio >= factor, !math.IsNaN(ratio)
	}}
}

func atMost(row, measure string, unit figures.Unit, bound float64) Target {
	return Target{row, measure, "≤ " + unit.Format(bound), func(_ *Report, f *figures.Figure) (bool, bool) {
		return f.Value(Keepwatch) <= bound, true
	}}
}

// more is to be at most so much more than another's.
func more(row, measure string, unit figures.Unit, than Contender, bound float64) Target {
	return Target{row, measure, fmt.Sprintf("≤ %s more than %s", unit.Format(bound), than),
		func(r *Report, f *figures.Figure) (bool, bool) {
			added := f.Value(Keepwatch) - f.Value(than)
			return added <= bound, !math.IsNaN(added)
		}}
}

func exactly(row, measure string, n int) Target {
	return Target{row, measure, fmt.Sprintf("= %d", n), func(_ *Report, f *figures.Figure) (bool, bool) {
		return f.Value(Keepwatch) == float64(n), true
	}}
}

// whereCurrent is to be at most a peer's, at rates at which the peer keeps up.
func whereCurrent(row, measure string, peer Contender) Target {
	return Target{row, measure, fmt.Sprintf("≤ %s's where it keeps up", peer),
		func(r *Report, f *figures.Figure) (bool, bool) {
			return f.Value(Keepwatch) <= f.Value(peer), r.keptUp(peer, row)
		}}
}

// whereDelivered is a target of at most a factor of a peer's figure, in rows where
// the peer cut off no watcher: otherwise its figure includes watchers that received
// few events.
func whereDelivered(row, measure string, peer Contender, factor float64) Target {
	return Target{row, measure, fmt.Sprintf("≤ %.3g× %s where it cuts off nobody", factor, peer),
		func(r *Report, f *figures.Figure) (bool, bool) {
			return f.Ratio(peer) <= factor, r.value(peer, row, cutOff) == 0
		}}
}

// keptUp reports whether no watcher was cut off, and all received the last event within
// seconds.
func (r *Report) keptUp(by Contender, row string) bool {
	return r.value(by, row, cutOff) == 0 && r.value(by, row, behind) <= 3
}

// ServeTargets returns the targets of keepwatch serve, for concurrent lists at a time, and the clients of a restart.
func ServeTargets(concurrent int, restart restartClients) []Target {
	const mb = 1e6
	all := []Target{
		part(listJSON.Row, wallTime, KubeAPIServer, 1.0/8), part(listJSON.Row, wallTime, PlainGo, 1.3),
		part(listJSON.Row, serverCPU, KubeAPIServer, 1.0/10),
		part(listGzip.Row, wallTime, KubeAPIServer, 1.0/40), part(listGzip.Row, wallTime, PlainGo, 1.3),
		part(listGzip.Row, serverCPU, KubeAPIServer, 1.0/80),
		part(listProtobuf.Row, wallTime, KubeAPIServer, 1.0/5), part(listProtobuf.Row, wallTime, PlainGo, 1.3),
		part(listProtobuf.Row, serverCPU, KubeAPIServer, 1.0/6),
		part(listNamespace.Row, serverCPU, KubeAPIServer, 1.0/8),
		part(listPages.Row, serverCPU, KubeAPIServer, 1.0/8),
		part(watchListJSON.Row, serverCPU, KubeAPIServer, 1.0/10),
		part(watchListProtobuf.Row, serverCPU, KubeAPIServer, 1.0/10),
		part(firstRow(listJSON), wallTime, KubeAPIServer, 0.6),
		part(startRow, toReady, KubeAPIServer, 0.4), part(startRow, resident, KubeAPIServer, 0.35),
		part(warmRow, resident, KubeAPIServer, 0.35),
		atMost(idleRow, perWatcher, figures.Bytes, 12_000),
		exactly(restart.row(), liveAgain, restart.informers+restart.watchers),
		atMost(restart.row(), lastLive, figures.Seconds, restart.within().Seconds()),
		exactly(restart.row(), listsAgain, 0), exactly(restart.row(), initialStreams, 0),
	}
	for _, l := range []listMode{listJSON, listProtobuf, listGzip} {
		row := stormRow(concurrent, l)
		all = append(all, exactly(row, complete, concurrent), atMost(row, growth, figures.Bytes, 300*mb))
	}
	for _, f := range fanOuts {
		all = append(all, whereDelivered(f.row(), perEvent, KubeAPIServer, 0.5), part(f.row(), perEvent, PlainGo, 1.3),
			whereCurrent(f.row(), p99, KubeAPIServer))
		if f.rate == 1000 {
			all = append(all, exactly(f.row(), cutOff, 0))
		}
	}
	return all
}

// KubernetesTargets returns the targets of keepwatch-apiserver compared with its other mode.
func KubernetesTargets() []Target {
	all := []Target{
		part(startRow, toReady, Upstream, 0.5), part(startRow, resident, Upstream, 0.4),
		part(listJSON.Row, serverCPU, Upstream, 0.15),
		part(listGzip.Row, serverCPU, Upstream, 0.02),
		part(listProtobuf.Row, serverCPU, Upstream, 0.17),
		part(listTable.Row, serverCPU, Upstream, 0.15),
		part(listPages.Row, serverCPU, Upstream, 0.1),
		part(watchListJSON.Row, serverCPU, Upstream, 0.1),
		part(watchListProtobuf.Row, serverCPU, Upstream, 0.1),
	}
	for _, l := range firstLists {
		all = append(all, part(firstRow(l), serverCPU, Upstream, 0.6))
	}
	for _, f := range fanOuts {
		all = append(all, whereDelivered(f.row(), perEvent, Upstream, 0.6), exactly(f.row(), cutOff, 0))
	}
	for _, writers := range writerCounts {
		for _, kind := range writeKinds {
			row := kind.row(writers)
			all = append(all, multiple(row, perSecond, Upstream, 1.1), part(row, perWrite, Upstream, 0.85),
				part(row, writeP99, Upstream, 1))
		}
	}
	return all
}

// ProxyTargets returns the targets of keepwatch proxy.
func ProxyTargets() []Target {
	all := []Target{
		part(inAnyState(listJSON).Row, serverCPU, KubeAPIServer, 0.2),
		part(inAnyState(listGzip).Row, serverCPU, KubeAPIServer, 0.02),
		part(slimRow.Row, body, KubeAPIServer, 0.55),
		atMost(busyRow, waited, figures.Seconds, 0.2),
		atMost(quietRow, waited, figures.Seconds, 2),
		exactly(proxyRestart.row(), liveAgain, proxyRestart.informers+proxyRestart.watchers),
		atMost(proxyRestart.row(), afterLists, figures.Seconds, 3),
		exactly(proxyRestart.row(), listsAgain, 0), exactly(proxyRestart.row(), initialStreams, 0),
		exactly(proxyRestart.row(), watchesForwarded, 0),
	}
	for _, stage := range memoryStages {
		all = append(all, atMost(stage.row, heapPerByte, figures.Count, 1.2), atMost(stage.row, restPerByte, figures.Count,
			1.2))
	}
	for _, f := range proxyFanOuts {
		all = append(all, whereDelivered(f.row(), perEvent, KubeAPIServer, 0.6), exactly(f.row(), cutOff, 0))
	}
	all = append(all, part(informersBehind.row(), cpuBehind, KubeAPIServer, 0.02))
	for _, q := range forwardedRequests {
		all = append(all, more(q.row, p50, figures.Seconds, KubeAPIServer, time.Millisecond.Seconds()))
	}
	return all
}
