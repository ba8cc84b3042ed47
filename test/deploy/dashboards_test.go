package deploy

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// drawFlag is for make pictures: Grafana is in no registry of packages, so that its own screenshot can't be a test's.
var drawFlag = flag.String("deploy.draw", "",
	"a folder, into which TestDashboards draws the dashboards as it has seen them")

// panel is a panel of a dashboard.
type panel struct {
	Title       string
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ Expr, LegendFormat string }
	FieldConfig struct {
		Defaults struct {
			Unit   string
			Custom struct{ Stacking struct{ Mode string } }
		}
	}
}

// dashboard is a dashboard of Grafana.
type dashboard struct {
	UID, Title string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

func dashboards(t *testing.T) (all []dashboard) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if d.UID != strings.TrimSuffix(filepath.Base(file), ".json") || len(d.Panels) == 0 {
			t.Fatalf("%s: %+v", file, d)
		}
		all = append(all, d)
	}
	return all
}

// storyAlerts are the alerts that fire at the end of the story. The others need minutes: TestAlerts has them.
var storyAlerts = map[string]bool{"KeepwatchSyncGap": true, "KeepwatchSyncDeadLetters": true}

var (
	legend   = regexp.MustCompile(`\{\{(\w+)\}\}`)
	variable = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
)

// TestDashboards evaluates each expression of the dashboards and of the alerts with Prometheus' engine, on what a proxy
// and a sync expose while their API server loses its history: each line of a panel has series, with the labels of its
// legend, and shows what happened.
func TestDashboards(t *testing.T) {
	s := newStory(t)
	s.tell()
	checkNames(t, "proxy", s.proxy.body("/metrics", s.server.Config().BearerToken))
	checkNames(t, "sync", s.sync.body("/metrics", ""))
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: promQL,
	})
	for _, d := range dashboards(t) {
		instances := map[string]bool{}
		for _, v := range d.Templating.List {
			found := variable.FindStringSubmatch(v.Definition)
			if found == nil {
				continue
			}
			for _, series := range s.query(engine, found[1]) {
				instances[series.Metric.Get(found[2])] = true
			}
			if len(instances) == 0 {
				t.Errorf("%s: the variable %s has no values", d.Title, v.Name)
			}
		}
		all := strings.Join(slices.Sorted(maps.Keys(instances)), "|")
		shown := make([][]line, len(d.Panels))
		for i, p := range d.Panels {
			for _, target := range p.Targets {
				where := fmt.Sprintf("%s: %s: %s", d.Title, p.Title, target.Expr)
				// As Grafana does: all instances, and four times the interval of the scrapes.
				expr := strings.NewReplacer("$instance", all, "$__rate_interval", (4 * interval).String()).Replace(target.Expr)
				found := s.query(engine, expr)
				if len(found) == 0 {
					t.Errorf("%s: there is no series", where)
				}
				high := 0.0
				for _, series := range found {
					shown[i] = append(shown[i], line{nameOf(target.LegendFormat, series), series.Floats})
					for _, point := range series.Floats {
						high = max(high, point.F)
					}
					for _, name := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
						if !series.Metric.Has(name[1]) && name[1] != "namespace" { // empty if the type is followed in all
							t.Errorf("%s: the legend has %s, which %s lacks", where, name[1], series.Metric)
						}
					}
				}
				if high == 0 {
					t.Errorf("%s: it is always 0", where)
				}
			}
		}
		if *drawFlag != "" {
			draw(t, *drawFlag, d, shown, s.now.UnixMilli())
		}
	}
	for name, r := range alerts(t) {
		expr, err := promQL.ParseExpr(r.Expr)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rule := rules.NewAlertingRule(name, expr, time.Duration(r.For), 0, labels.FromMap(r.Labels),
			labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
		for at := epoch; !at.After(s.now); at = at.Add(interval) {
			if _, err := rule.Eval(t.Context(), 0, at, rules.EngineQueryFunc(engine, s.storage), nil, 0); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		firing := ""
		for _, a := range rule.ActiveAlerts() {
			if a.State == rules.StateFiring {
				firing += a.Annotations.Get("summary") + ". "
			}
		}
		if (firing != "") != storyAlerts[name] {
			t.Errorf("%s fires: %q", name, firing)
		}
		for _, missing := range s.missing(expr) {
			t.Errorf("alert %s: nothing exposes %s", name, missing)
		}
	}
}
