package served

import (
	"fmt"
	"math"
	"time"
)

// Target is a target for one of keepwatch's figures.
type Target struct {
	Row, Measure string
	Goal         string // in words
	// met reports whether a value meets the target; judged is false where it does not apply.
	met func(r *Report, value float64) (met, judged bool)
}

func (t Target) verdict(r *Report) string {
	value := r.value(Keepwatch, t.Row, t.Measure)
	if math.IsNaN(value) {
		return "**missed**" // a row without a figure failed
	}
	switch met, judged := t.met(r, value); {
	case !judged:
		return "not judged"
	case met:
		return "met"
	}
	return "**missed**"
}

// part is to be at most a factor of another's.
func part(row, measure string, of Contender, factor float64) Target {
	return Target{row, measure, fmt.Sprintf("≤ %.3g× %s", factor, of), func(r *Report, value float64) (bool, bool) {
		other := r.value(of, row, measure)
		return value <= factor*other, !math.IsNaN(other)
	}}
}

func atMost(row, measure string, unit Unit, bound float64) Target {
	return Target{row, measure, "≤ " + unit.format(bound), func(_ *Report, value float64) (bool, bool) {
		return value <= bound, true
	}}
}

func exactly(row, measure string, n int) Target {
	return Target{row, measure, fmt.Sprintf("= %d", n), func(_ *Report, value float64) (bool, bool) {
		return value == float64(n), true
	}}
}

// whereCarried is to be at most kube-apiserver's, at rates that it carries.
func whereCurrent(row, measure string) Target {
	return Target{row, measure, "≤ kube-apiserver's where it keeps up", func(r *Report, value float64) (bool, bool) {
		return value <= r.value(KubeAPIServer, row, measure), r.keptUp(KubeAPIServer, row)
	}}
}

// whereDelivered is a target of at most a factor of kube-apiserver's figure, in rows where
// kube-apiserver cut off no watcher: otherwise its figure includes watchers that received
// few events.
func whereDelivered(row, measure string, factor float64) Target {
	return Target{row, measure, fmt.Sprintf("≤ %.3g× kube-apiserver where it cuts off nobody", factor), func(r *Report, value float64) (bool, bool) {
		return value <= factor*r.value(KubeAPIServer, row, measure), r.value(KubeAPIServer, row, cutOff) == 0
	}}
}

// keptUp reports whether no watcher was cut off, and all received the last event within
// seconds.
func (r *Report) keptUp(by Contender, row string) bool {
	return r.value(by, row, cutOff) == 0 && r.value(by, row, behind) <= 3
}

// Targets returns the targets, for concurrent lists at a time.
func Targets(concurrent int) []Target {
	const mb = 1e6
	all := []Target{
		part(listJSON.Row, wallTime, KubeAPIServer, 1.0/8), part(listJSON.Row, wallTime, PlainGo, 1.3), part(listJSON.Row, serverCPU, KubeAPIServer, 1.0/10),
		part(listGzip.Row, wallTime, KubeAPIServer, 1.0/40), part(listGzip.Row, wallTime, PlainGo, 1.3), part(listGzip.Row, serverCPU, KubeAPIServer, 1.0/80),
		part(listProtobuf.Row, wallTime, KubeAPIServer, 1.0/5), part(listProtobuf.Row, wallTime, PlainGo, 1.3), part(listProtobuf.Row, serverCPU, KubeAPIServer, 1.0/6),
		part(listNamespace.Row, serverCPU, KubeAPIServer, 1.0/8),
		part(listPages.Row, serverCPU, KubeAPIServer, 1.0/8),
		part(watchListJSON.Row, serverCPU, KubeAPIServer, 1.0/10),
		part(watchListProtobuf.Row, serverCPU, KubeAPIServer, 1.0/10),
		part(firstRow(listJSON), wallTime, KubeAPIServer, 0.6),
		part(startRow, toReady, KubeAPIServer, 0.4), part(startRow, resident, KubeAPIServer, 0.35),
		part(warmRow, resident, KubeAPIServer, 0.35),
		atMost(idleRow, perWatcher, Bytes, 12_000),
		exactly(restartRow, liveAgain, restartInformers+restartWatchers),
		atMost(restartRow, lastLive, Seconds, (3 * time.Second).Seconds()),
		exactly(restartRow, listsAgain, 0), exactly(restartRow, initialStreams, 0),
	}
	for _, l := range []listMode{listJSON, listProtobuf, listGzip} {
		row := stormRow(concurrent, l)
		all = append(all, exactly(row, complete, concurrent), atMost(row, growth, Bytes, 300*mb))
	}
	for _, f := range fanOuts {
		all = append(all, whereDelivered(f.row(), perEvent, 0.5), part(f.row(), perEvent, PlainGo, 1.3), whereCurrent(f.row(), p99))
		if f.rate == 1000 {
			all = append(all, exactly(f.row(), cutOff, 0))
		}
	}
	return all
}
