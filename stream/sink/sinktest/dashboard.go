package sinktest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// EventTables are statements that store two Events, one of which was repeated and is gone, and a gap.
const EventTables = `INSERT INTO cursors (resource, namespace, line, active, identity) VALUES ('events', '', 0, true, '{}');
	INSERT INTO gaps (resource, namespace, epoch, from_revision, to_revision, reason, seen)
		VALUES ('events', '', 0, 10, 20, 'expired', '2026-11-29 02:10:00.000');
	INSERT INTO TABLE_OF_STATES (resource, namespace, name, uid, epoch, valid_from, seen_from, to_epoch, valid_to, seen_to, deleted, object) VALUES
	('events', 'shop', 'a', '1', 0, 30, '2026-11-29 02:12:00.000', 0, 31, '2026-11-29 02:13:00.000', FALSE,
		'{"type":"Warning","reason":"BackOff","count":1,"message":"restarting","involvedObject":{"kind":"Pod","name":"web"}}'),
	('events', 'shop', 'a', '1', 0, 31, '2026-11-29 02:13:00.000', 0, 40, '2026-11-29 03:13:00.000', TRUE,
		'{"type":"Warning","reason":"BackOff","count":17,"message":"restarting","involvedObject":{"kind":"Pod","name":"web"}}'),
	('events', 'shop', 'b', '2', 0, 32, '2026-11-29 02:14:00.000', NULL, NULL, NULL, FALSE,
		'{"type":"Normal","reason":"Killing","note":"stopping","regarding":{"kind":"Pod","name":"web"}}')`

// EventPanels are the rows of each panel of the dashboards of Events: of the Pod web, on the day of [EventTables].
var EventPanels = map[string]string{
	"Events written, by reason": "BackOff 1\nBackOff 1\nKilling 1",
	"Events, the newest first":  "shop Pod web Normal Killing 1 stopping current 32\nshop Pod web Warning BackOff 17 restarting ended 31",
	"Objects with most Events":  "shop Pod web BackOff 17\nshop Pod web Killing 1",
	"Gaps":                      "events  10 20 expired",
	"namespace":                 "shop",
}

// EventDashboard returns the SQL of each panel and variable of a dashboard of Events, with the values of variables as
// Grafana inserts them, and more for what is the data source's own.
func EventDashboard(t testing.TB, file string, more ...string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "grafana", "sql", file))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ RawSQL, QueryText string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	values := strings.NewReplacer(append(more, "${namespace:sqlstring}", "'other','shop'", "${type:sqlstring}",
		"'Warning','Normal'", "${name:sqlstring}", "'web'", "$__interval_ms", "60000")...)
	all := map[string]string{}
	for _, p := range d.Panels {
		all[p.Title] = values.Replace(p.Targets[0].RawSQL + p.Targets[0].QueryText)
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			all[v.Name] = values.Replace(v.Query)
		}
	}
	if len(all) != len(EventPanels) {
		t.Fatalf("%s has %d panels and variables", file, len(all))
	}
	return all
}
