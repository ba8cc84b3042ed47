package deploy

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// promQL parses what a Prometheus without feature flags does.
var promQL = parser.NewParser(parser.Options{})

// alerts returns the rules of all files, by name.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	files, err := filepath.Glob("../../deploy/prometheus/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	all := map[string]rulefmt.Rule{}
	for _, file := range files {
		groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, promQL)
		if len(errs) > 0 {
			t.Fatal(file, errs)
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				if _, ok := all[r.Alert]; ok || r.Alert == "" {
					t.Fatalf("%s: the alert %q is there twice, or has no name", file, r.Alert)
				}
				all[r.Alert] = r
			}
		}
	}
	return all
}

// alertTest is the samples of one alert, one a minute, and what it does.
type alertTest struct {
	load    string
	at      time.Duration
	firing  []string // the value of a label of each firing alert
	label   string
	summary string // of the first one
}

var alertTests = map[string][]alertTest{
	"KeepwatchProxyStale": {
		{load: `keepwatch_proxy_resource_confirmed_age_seconds{instance="a",resource="pods"} 0+60x20
			keepwatch_proxy_resource_confirmed_age_seconds{instance="a",resource="nodes"} 1 61 1 61 1 61 1 61 1 61`,
			at: 9 * time.Minute, label: "resource", firing: []string{"pods"}, summary: "pods of a was last confirmed 9m 0s ago"},
		{load: `keepwatch_proxy_resource_confirmed_age_seconds{instance="a",resource="pods"} 0 60 120 180 240 290 1 61 121 181`, at: 9 * time.Minute},
		{load: `keepwatch_proxy_resource_confirmed_age_seconds{instance="a",resource="pods"} 0 60 120 180 240 310 1 61 121 181`, at: 9 * time.Minute},
	},
	"KeepwatchProxyNotFollowing": {
		{load: `keepwatch_proxy_resource_state{instance="a",resource="pods",state="unauthorized"} 1x30
			keepwatch_proxy_resource_state{instance="a",resource="nodes",state="live"} 1x30`,
			at: 15 * time.Minute, label: "resource", firing: []string{"pods"}, summary: "pods is unauthorized at a"},
		{load: `keepwatch_proxy_resource_state{instance="a",resource="pods",state="stalled"} 1x8
			keepwatch_proxy_resource_state{instance="a",resource="pods",state="live"} _x8 1x10`, at: 15 * time.Minute},
	},
	"KeepwatchProxyListsAgain": {
		{load: `keepwatch_proxy_resource_lists_total{instance="a",resource="pods",reason="expired"} 0+1x40
			keepwatch_proxy_resource_lists_total{instance="a",resource="nodes",reason="expired"} 0x20 1x20`,
			at: 40 * time.Minute, label: "resource", firing: []string{"pods"}},
		{load: `keepwatch_proxy_resource_lists_total{instance="a",resource="pods",reason="start"} 0+1x40`,
			at: 40 * time.Minute},
	},
	"KeepwatchProxyForwards": {
		{load: `apiserver_request_total{instance="a",verb="LIST"} 0+100x40
			apiserver_request_total{instance="a",verb="GET"} 0+100x40
			keepwatch_proxy_forwarded_total{instance="a",reason="not-ready",resource="pods"} 0+90x40
			keepwatch_proxy_forwarded_total{instance="a",reason="undecided",resource="pods"} 0+60x40`,
			at: 30 * time.Minute, label: "instance", firing: []string{"a"},
			summary: "a forwards 75% of its requests that it should answer itself"},
		{load: `apiserver_request_total{instance="a",verb="LIST"} 0+100x40
			keepwatch_proxy_forwarded_total{instance="a",reason="request",resource="pods"} 0+90x40
			keepwatch_proxy_forwarded_total{instance="a",reason="not-ready",resource="pods"} 0+10x40`, at: 30 * time.Minute},
		{load: `apiserver_request_total{instance="a",verb="LIST"} 0x40
			keepwatch_proxy_forwarded_total{instance="a",reason="not-ready",resource="pods"} 0x40`, at: 30 * time.Minute},
	},
	"KeepwatchSyncBehind": {
		{load: `keepwatch_sync_lag_seconds{instance="a",sink="sqlite",resource="pods"} 0+60x20
			keepwatch_sync_lag_seconds{instance="a",sink="sqlite",resource="nodes"} 3x20`,
			at: 9 * time.Minute, label: "resource", firing: []string{"pods"},
			summary: "sqlite was confirmed to have all pods 9m 0s ago"},
		{load: `keepwatch_sync_lag_seconds{instance="a",sink="sqlite",resource="pods"} 100x20`, at: 9 * time.Minute},
	},
	"KeepwatchSyncNotComplete": {
		{load: `keepwatch_sync_complete{instance="a",line="0",sink="sqlite"} 0x40`, at: 20 * time.Minute, label: "sink",
			firing: []string{"sqlite"}},
		{load: `keepwatch_sync_complete{instance="a",line="0",sink="sqlite"} 1x40
			keepwatch_sync_complete{instance="a",line="0",sink="kafka"} 0x40`, at: 20 * time.Minute, label: "sink",
			firing: []string{"kafka"}, summary: "No keepwatch sync has a complete state in kafka (etcd 0)"},
		{load: `keepwatch_sync_complete{instance="a",line="0",sink="sqlite"} 1x40
			keepwatch_sync_complete{instance="a",line="1",sink="sqlite"} 0x40`, at: 20 * time.Minute, label: "line",
			firing: []string{"1"}, summary: "No keepwatch sync has a complete state in sqlite (etcd 1)"},
		{load: `other{} 1x40`, at: 20 * time.Minute, label: "severity", firing: []string{"warning"},
			summary: "No keepwatch sync has a complete state"},
		{load: `keepwatch_sync_complete{instance="standby",line="0",sink="sqlite"} 0x40
			keepwatch_sync_complete{instance="a",line="0",sink="sqlite"} 1x40`, at: 20 * time.Minute},
		{load: `keepwatch_sync_complete{instance="a",line="0",sink="sqlite"} 0x10 1x30`, at: 20 * time.Minute},
	},
	"KeepwatchSyncGap": {
		{load: `keepwatch_sync_gaps_total{instance="a",sink="sqlite",resource="pods",reason="Expired"} 0x10 1x30
			keepwatch_sync_gaps_total{instance="a",sink="sqlite",resource="nodes",reason="Expired"} 3x40`,
			at: 30 * time.Minute, label: "resource", firing: []string{"pods"},
			summary: "The history of pods in sqlite has a gap (Expired)"},
		{load: `keepwatch_sync_gaps_total{instance="a",sink="sqlite",resource="pods",reason="Expired"} 0x10 1x100`,
			at: 100 * time.Minute},
	},
	"KeepwatchSyncRetries": {
		{load: `keepwatch_sync_retries_total{instance="a",sink="sqlite"} 0+1x40`, at: 30 * time.Minute, label: "instance",
			firing: []string{"a"}},
		{load: `keepwatch_sync_retries_total{instance="a",sink="sqlite"} 0x10 1x30`, at: 30 * time.Minute},
	},
	"KeepwatchSyncExcess": {
		{load: `keepwatch_sync_excess_bytes{instance="a",sink="sqlite"} 0x10 2097152x30
			keepwatch_sync_excess_bytes{instance="b",sink="sqlite"} 0x40`, at: 30 * time.Minute, label: "instance",
			firing:  []string{"a"},
			summary: "The current states in sqlite are 2MiB more than --max-size"},
		{load: `keepwatch_sync_excess_bytes{instance="a",sink="sqlite"} 0x10 9x5 0x30`, at: 30 * time.Minute},
	},
	"KeepwatchSyncClockBehind": {
		{load: `keepwatch_sync_clock_behind_seconds{instance="a",sink="sqlite"} 7200-60x30
			keepwatch_sync_clock_behind_seconds{instance="b",sink="sqlite"} 0x30`, at: 10 * time.Minute, label: "instance",
			firing:  []string{"a"},
			summary: "The clock of a is 1h 50m 0s behind the newest transaction in sqlite"},
		{load: `keepwatch_sync_clock_behind_seconds{instance="a",sink="sqlite"} 50x30`, at: 10 * time.Minute},
		{load: `keepwatch_sync_clock_behind_seconds{instance="a",sink="sqlite"} 120-60x30`, at: 10 * time.Minute},
	},
	"KeepwatchSyncDeadLetters": {
		{load: `keepwatch_sync_dead_letters_total{instance="a",sink="https"} 0x10 1x30
			keepwatch_sync_dead_letters_total{instance="b",sink="https"} 2x40`, at: 30 * time.Minute, label: "instance",
			firing: []string{"a"}},
		{load: `keepwatch_sync_dead_letters_total{instance="a",sink="https"} 0x10 1x100`, at: 100 * time.Minute},
	},
}

// Each alert fires when it should, with a sentence that says so, and does not otherwise.
func TestAlerts(t *testing.T) {
	all := alerts(t)
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute,
		LookbackDelta: 5 * time.Minute, Parser: promQL})
	for name, r := range all {
		if len(alertTests[name]) < 2 {
			t.Errorf("%s is not tested", name)
		}
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s has no severity, summary or description", name)
		}
	}
	for name, tests := range alertTests {
		expression, err := promQL.ParseExpr(all[name].Expr)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, c := range tests {
			storage := promqltest.LoadedStorage(t, "load 1m\n"+c.load)
			rule := rules.NewAlertingRule(name, expression, time.Duration(all[name].For), 0, labels.FromMap(all[name].Labels),
				labels.FromMap(all[name].Annotations),
				labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
			for at := time.Duration(0); at <= c.at; at += time.Minute {
				if _, err := rule.Eval(t.Context(), 0, time.Unix(0, 0).Add(at), rules.EngineQueryFunc(engine, storage), nil,
					0); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			var firing, summaries []string
			for _, a := range rule.ActiveAlerts() {
				if a.State == rules.StateFiring {
					firing = append(firing, a.Labels.Get(c.label))
					summaries = append(summaries, a.Annotations.Get("summary"))
				}
			}
			if !slices.Equal(firing, c.firing) {
				t.Errorf("%s, test %d: firing %q, want %q", name, i, firing, c.firing)
			}
			if c.summary != "" && !slices.Equal(summaries, []string{c.summary}) {
				t.Errorf("%s, test %d: the summary is %q, want %q", name, i, summaries, c.summary)
			}
			if err := storage.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
