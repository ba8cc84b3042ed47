package main

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/figures"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

var (
	historyStates = flag.Int("history.states", 20_000, "states of the history of BenchmarkHistory")
	historyPods   = flag.Int("history.pods", 1_000, "pods of the history of BenchmarkHistory")
	historyBytes  = flag.Int("history.bytes", 600, "bytes of a state of BenchmarkHistory")
)

// heartbeat is a state of a pod whose status changes all the time.
type heartbeat struct {
	pod, bytes int
	revision   keepwatch.Revision
	at         time.Time
}

func (o heartbeat) Key() keepwatch.Key {
	return keepwatch.Key{Namespace: fmt.Sprint("ns-", o.pod%100), Name: fmt.Sprintf("deployment-%d-%06x", o.pod%500, o.pod)}
}
func (o heartbeat) UID() keepwatch.UID {
	return keepwatch.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", o.pod))
}
func (o heartbeat) Revision() keepwatch.Revision { return o.revision }
func (o heartbeat) Metadata() []byte             { return nil }
func (o heartbeat) JSON() []byte {
	key := o.Key()
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d",`+
		`"creationTimestamp":"2026-11-01T10:00:00Z","labels":{"app":"app-%d"}},"spec":{"nodeName":"node-%d","containers":[{"name":"main",`+
		`"image":"registry.example.com/app:%d"}]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True",`+
		`"lastProbeTime":%q}],"message":"`, key.Name, key.Namespace, o.UID(), o.revision, o.pod%500, o.pod%300, o.pod%50,
		o.at.Format(time.RFC3339))
	return []byte(text + strings.Repeat("x", max(0, o.bytes-len(text)-3)) + `"}}`)
}

// storeHeartbeats stores a history of a day: pods, and then changes of random ones.
func storeHeartbeats(b *testing.B, path string, pods, states, bytes int) {
	b.Helper()
	s := sqlite.New(path, sqlite.Options{})
	if _, err := s.Open(b.Context(), []sink.Stream{{
		ID: stream.Identity{Resource: "pods", Cluster: stream.Cluster{UID: "test"}},
		Type: &sink.Type{Version: "v1", Kind: "Pod", Singular: "pod", ShortNames: []string{"po"},
			Namespaced: true},
	}}); err != nil {
		b.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	began := time.Now().UTC().Add(-24 * time.Hour).Truncate(time.Millisecond)
	progress := sink.Progress{}
	const batch = 1000
	for first := 0; first < states; first += batch {
		at := began.Add(24 * time.Hour / time.Duration(states) * time.Duration(first))
		p := stream.Piece{Count: uint64(min(pods, first+batch)), Position: []byte(`{}`)}
		for i := first; i < min(first+batch, states); i++ {
			o := heartbeat{i, bytes, keepwatch.Revision(i + 1), at}
			kind := keepwatch.Added
			if i >= pods {
				o.pod, kind = random.IntN(pods), keepwatch.Modified
			}
			p.Messages = append(p.Messages, stream.Event{Type: kind, Revision: o.revision, Object: o})
			if i == pods-1 {
				p.Messages = append(p.Messages, stream.Synced{Revision: o.revision, Count: uint64(pods)})
			}
			if i >= pods-1 {
				p.Cursor = o.revision
			}
		}
		piece := sink.Piece{Piece: p, Before: progress, After: progress.After(p)}
		progress = piece.After
		if err := s.Write(b.Context(), sink.Batch{Time: at, Pieces: []sink.Piece{piece}}); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkHistory reads the history of a day of pods from SQLite, with commands in processes of their own and with a
// server. Run it with -benchtime 1x. With -figures.record history it writes the run for docs/history.md.
func BenchmarkHistory(b *testing.B) {
	for b.Loop() {
		path := filepath.Join(b.TempDir(), "state.db")
		states, pods := *historyStates, *historyPods
		if states < 4*pods {
			b.Fatal("give at least four states a pod")
		}
		run := figures.NewRun("bench-history")
		run.SetLoad()
		storeHeartbeats(b, path, pods, states, *historyBytes)
		set := func(row, measure string, unit figures.Unit, value float64, goal float64) {
			f := run.Of(row, measure, unit)
			f.Set(figures.Ours, 0, value)
			if goal > 0 {
				f.Goal, f.Missed = "≤ "+unit.Format(goal), value > goal
			}
			fmt.Println(strings.TrimSpace(fmt.Sprintf("%s, %s: %s %s", row, measure, unit.Format(value), f.Goal)))
		}
		file, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		set("the file", "bytes of a state", figures.Bytes, float64(file.Size())/float64(states), 0)
		printCompressed(b, path)
		h := heartbeats{b, "sqlite:" + path, set}
		h.commands(pods, states)
		h.server(states)
		if err := run.Record(); err != nil {
			b.Fatal(err)
		}
	}
}

// printCompressed prints what the states of a file take that are compressed, and the file without gaps.
func printCompressed(b *testing.B, path string) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	var states int
	var part float64
	if err := db.QueryRow(`SELECT count(*),
		coalesce(1.0 * (sum(length(s.object)) + (SELECT sum(length(object)) FROM bases)) / sum(length(r.object)), 0)
		FROM states s JOIN resources r USING (id) WHERE s.base IS NOT NULL`).Scan(&states, &part); err != nil {
		b.Fatal(err)
	}
	small := path + ".small"
	if _, err := db.Exec(`VACUUM INTO ?`, small); err != nil {
		b.Fatal(err)
	}
	file, err := os.Stat(small)
	if err := errors.Join(err, os.Remove(small)); err != nil {
		b.Fatal(err)
	}
	fmt.Printf("%d states are compressed to %.3f of their JSON; after VACUUM the file has %s\n", states, part,
		figures.Bytes.Format(float64(file.Size())))
}

// heartbeats measures reads of a history.
type heartbeats struct {
	*testing.B
	database string
	set      func(row, measure string, unit figures.Unit, value, goal float64)
}

// commands measures the subcommands of keepwatch history.
func (h heartbeats) commands(pods, states int) {
	key := heartbeat{pod: pods / 2}.Key()
	for _, row := range []struct {
		name, args string
		goal       float64
	}{
		{"`log` of an object", fmt.Sprintf("log pod/%s -n %s", key.Name, key.Namespace), 0.1},
		{"`log` of all types, 15 minutes", "log -A --since -15m", 0},
		{"`log` of a type, everything", "log pods -A", 0},
		{"`diff` of 100 revisions", fmt.Sprintf("diff -A --at revision/%d --and revision/%d", states/2, states/2+100), 0},
		{"`diff` of half of the history", fmt.Sprintf("diff -A --at revision/%d -o fields", states/2), 0},
	} {
		p := newProcess(h, append([]string{self(h), "history"}, append(strings.Fields(row.args), "--from", h.database)...))
		began, peak := time.Now(), 0.0
		p.start(h)
		for running := true; running; { // the kernel's maximum of an ended process includes the one that started it
			peak = max(peak, peakOf(p.Process.Pid))
			select {
			case <-p.ended:
				running = false
			case <-time.After(5 * time.Millisecond):
			}
		}
		took := time.Since(began)
		if code := p.exit(h); code != 0 {
			h.Fatalf("%s: exit %d: %s", row.args, code, p.stderr)
		}
		h.set(row.name, "time", figures.Seconds, took.Seconds(), row.goal)
		h.set(row.name, "CPU", figures.Seconds, (p.ProcessState.UserTime() + p.ProcessState.SystemTime()).Seconds(), 0)
		h.set(row.name, "peak memory", figures.Bytes, peak, 0)
	}
}

// server measures a server of the history.
func (h heartbeats) server(states int) {
	past := servePast(h, h.database)
	at := func(revision int) string { return fmt.Sprintf("/at/revision/%d/api/v1/pods", revision) }
	middle, day := states/2, states/24/60 // revisions of a minute
	hoursAgo := fmt.Sprintf("/at/%s/api/v1/pods", time.Now().Add(-6*time.Hour).UTC().Format(time.RFC3339))
	for _, row := range []struct {
		name, path string
		goal       float64
	}{
		{"first LIST of a moment", at(middle), 5},
		{"the same LIST again", at(middle), 0},
		{"a LIST a minute later", at(middle + day), 1},
		{"a LIST a minute before", at(middle - day), 1},
		{"a LIST an hour later", at(middle + 60*day), 1},
		{"a LIST at the end", at(states), 1},
		{"a LIST at a time, 6 hours ago", hoursAgo, 1},
		{"a page of it", hoursAgo + "?limit=100", 0},
		{"the page of an hour", "/keepwatch/?type=pods", 1},
		{"the page of the day", "/keepwatch/?type=pods&from=-1d", 0},
	} {
		q, err := http.NewRequestWithContext(h.Context(), http.MethodGet, past.host+row.path, nil)
		if err != nil {
			h.Fatal(err)
		}
		began, cpu := time.Now(), h.cpu(past.process.Process.Pid)
		answer, err := past.client.Do(q)
		if err != nil {
			h.Fatal(err)
		}
		n, err := io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || n == 0 {
			h.Fatalf("%s: %s, %d bytes, %v", row.path, answer.Status, n, err)
		}
		h.set(row.name, "time", figures.Seconds, time.Since(began).Seconds(), row.goal)
		h.set(row.name, "CPU", figures.Seconds, h.cpu(past.process.Process.Pid)-cpu, 0)
		peak, goal := peakOf(past.process.Process.Pid), 0.0
		if row.name == "first LIST of a moment" {
			goal = 500e6
		}
		h.set(row.name, "peak memory", figures.Bytes, peak, goal)
	}
}

// cpu returns the CPU time of a running process, in hundredths of a second.
func (h heartbeats) cpu(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ") // behind the name
	columns := strings.Fields(rest)
	if err != nil || len(columns) < 13 {
		h.Fatal(err)
	}
	var user, system float64
	_, err = fmt.Sscan(columns[11]+" "+columns[12], &user, &system)
	if err != nil {
		h.Fatal(err)
	}
	return (user + system) / 100
}
