package controlplane

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/keepwatch/keepwatch/test/peer"
)

// figures is what a story measures.
type figures struct {
	reads string // value of --reads

	cpu, etcdCPU float64 // seconds
	peak         int64   // of the API server's resident memory, in bytes

	allRun time.Duration // from the first Deployment's creation until all pods run
	ready  time.Duration // from the kill until the API server is ready
	follow time.Duration // from the kill until the pod of a new Deployment runs
	drain  time.Duration
	total  time.Duration

	resumed   resumption
	mutating  map[float64]uint64 // requests by upper bound of their duration in seconds, cumulative
	answered  float64            // reads by Keepwatch's read path
	delegated map[string]float64 // reads by the API server's handlers, by reason
}

// add adds what the API server's process has measured.
func (f *figures) add(ctx context.Context, cluster *peer.Cluster) error {
	m, err := cluster.Metrics(ctx)
	if err != nil {
		return err
	}
	memory, err := cluster.Process().Memory()
	if err != nil {
		return err
	}
	f.cpu += m.Sum("process_cpu_seconds_total", nil)
	f.peak = max(f.peak, memory.Peak)
	f.addMutating(m)
	f.addReads(m)
	return nil
}

// mutatingVerbs are those of requests that write one object.
var mutatingVerbs = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}

func (f *figures) addMutating(m peer.Metrics) {
	if f.mutating == nil {
		f.mutating = map[float64]uint64{}
	}
	for _, series := range m["apiserver_request_duration_seconds"].GetMetric() {
		if !slices.Contains(mutatingVerbs, label(series, "verb")) {
			continue
		}
		for _, b := range series.GetHistogram().GetBucket() {
			f.mutating[b.GetUpperBound()] += b.GetCumulativeCount()
		}
	}
}

// p99 returns the 99th percentile of mutating requests, interpolated in its bucket as Prometheus does.
func (f *figures) p99() float64 {
	bounds := slices.Sorted(maps.Keys(f.mutating))
	rank := 0.99 * float64(f.mutating[math.Inf(1)])
	below, under := 0.0, 0.0
	for _, bound := range bounds {
		n := float64(f.mutating[bound])
		if n >= rank {
			return below + (bound-below)*(rank-under)/(n-under)
		}
		below, under = bound, n
	}
	return math.NaN()
}

// reasonSubresource is the reason of reads of subresources. The read path counts them with all writes.
const reasonSubresource = "subresource"

func (f *figures) addReads(m peer.Metrics) {
	if f.delegated == nil {
		f.delegated = map[string]float64{}
	}
	f.answered += m.Sum("keepwatch_readpath_answered_total", nil)
	for _, series := range m["keepwatch_readpath_delegated_total"].GetMetric() {
		if why := label(series, "reason"); why != "verb" {
			f.delegated[why] += series.GetCounter().GetValue()
		}
	}
	for _, series := range m["apiserver_request_total"].GetMetric() {
		if label(series, "verb") == "GET" && label(series, "resource") != "" && label(series, "subresource") != "" {
			f.delegated[reasonSubresource] += series.GetCounter().GetValue()
		}
	}
}

// delegatedShare returns the share of reads that the API server's handlers answered.
func (f *figures) delegatedShare() float64 {
	delegated := 0.0
	for _, n := range f.delegated {
		delegated += n
	}
	return delegated / (f.answered + delegated)
}

func label(series *dto.Metric, name string) string {
	for _, l := range series.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// row is one line of the table.
type row struct {
	what, unit string
	of         func(figures) float64
}

var rows = []row{
	{"API server CPU", "s", func(f figures) float64 { return f.cpu }},
	{"API server peak memory", "MB", func(f figures) float64 { return float64(f.peak) / 1e6 }},
	{"etcd CPU", "s", func(f figures) float64 { return f.etcdCPU }},
	{"time until all pods run", "s", func(f figures) float64 { return f.allRun.Seconds() }},
	{"p99 of mutating requests", "ms", func(f figures) float64 { return 1000 * f.p99() }},
	{"killed: API server ready", "s", func(f figures) float64 { return f.ready.Seconds() }},
	{"killed: the components watch all again", "s", func(f figures) float64 { return f.resumed.following.Seconds() }},
	{"killed: a new Deployment's pod runs", "s", func(f figures) float64 { return f.follow.Seconds() }},
	{"killed: LISTs by the components", "", func(f figures) float64 { return float64(f.resumed.lists) }},
	{"killed: initial streams by the components", "", func(f figures) float64 { return float64(f.resumed.streams) }},
	{"killed: both, before an answer of the server", "", func(f figures) float64 { return float64(f.resumed.unanswered) }},
	{"killed: watches resumed by the components", "", func(f figures) float64 { return float64(f.resumed.watches) }},
	{"time of the drain", "s", func(f figures) float64 { return f.drain.Seconds() }},
	{"time of the story", "s", func(f figures) float64 { return f.total.Seconds() }},
	{"reads", "", func(f figures) float64 { return f.answered }},
	{"delegated reads", "%", func(f figures) float64 { return 100 * f.delegatedShare() }},
}

// printTable prints the figures of all runs, in Markdown, with the ratio of the first to the last.
func printTable(w io.Writer, size scale, all []figures) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "%d nodes, %d Deployments, %d pods\n\n| what |", size.nodes, size.deployments, size.pods)
	for _, f := range all {
		fmt.Fprintf(w, " %s |", f.reads)
	}
	fmt.Fprintf(w, " ratio |\n|---|%s---|\n", strings.Repeat("---|", len(all)))
	for _, r := range rows {
		fmt.Fprintf(w, "| %s |", r.what)
		for _, f := range all {
			fmt.Fprintf(w, " %s |", r.format(r.of(f)))
		}
		fmt.Fprintf(w, " %s |\n", r.ratio(all))
	}
	for _, f := range all {
		for _, why := range slices.Sorted(maps.Keys(f.delegated)) {
			fmt.Fprintf(w, "%s: %.0f reads delegated: %s\n", f.reads, f.delegated[why], why)
		}
	}
}

func (r row) format(value float64) string {
	if math.IsNaN(value) {
		return "–"
	}
	return strings.TrimSpace(fmt.Sprintf("%.4g %s", value, r.unit))
}

func (r row) ratio(all []figures) string {
	ratio := r.of(all[0]) / r.of(all[len(all)-1])
	if len(all) < 2 || math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return "–"
	}
	return fmt.Sprintf("%.2f×", ratio)
}
