package follow

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// TestRetentionOfUnknownTypes opens a database only if each type with a retention of its own is followed or stored, or
// if a pattern may still bring it.
func TestRetentionOfUnknownTypes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	streams := func(names ...string) (all []sink.Stream) {
		for _, name := range names {
			s := sink.Stream{ID: stream.Identity{Cluster: stream.Cluster{Server: "s"}, Resource: name}}
			if name == "deployments.apps" {
				s.Type = &sink.Type{Kind: "Deployment", Singular: "deployment", ShortNames: []string{"deploy"}}
			}
			all = append(all, s)
		}
		return all
	}
	before := sqlite.New(path, sqlite.Options{})
	if _, err := before.Open(t.Context(), streams("jobs.batch")); err != nil {
		t.Fatal(err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	all, group := syncResource{all: true}, syncResource{group: "example.com"}
	const refused, meant = "--retention: no type ", " is followed or stored: did you mean deployments.apps?"
	const unknown = " is followed or stored: remove it, or give its plural and its group, such as deployments.apps"
	for _, row := range []struct {
		retention string
		pattern   syncResource
		err, said string
	}{
		{"7d,deployments.apps=365d,pods=1d,jobs.batch=0", all, "", ""},
		{"7d,deployments=365d", all, refused + "deployments" + meant, ""},
		{"7d,deployment=365d", all, refused + "deployment" + meant, ""},
		{"7d,deploy=365d", all, refused + "deploy" + meant, ""},
		{"7d,deployments.v1.apps=365d", all, refused + "deployments.v1.apps" + meant, ""},
		{"7d,deployments.app=365d", all, refused + "deployments.app" + meant, ""},
		{"7d,deploymets.apps=365d", all, refused + "deploymets.apps" + unknown, ""},
		{"7d,nonsense=365d", all, refused + "nonsense" + unknown, ""},
		{"7d,widgets.example.com=365d", syncResource{}, refused + "widgets.example.com" + unknown, ""},
		{"7d,widgets.example.com=365d", group, "",
			"keepwatch: --retention: no type widgets.example.com is followed or stored yet\n"},
	} {
		var r retention
		if err := r.Set(row.retention); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		d := &retaining{database: sqlite.New(path, sqlite.Options{}), retention: &r,
			resources: []syncResource{row.pattern}, report: newSyncReport(&out, &out, "")}
		for range 2 { // it says once what it awaits
			_, err := d.Open(t.Context(), streams("deployments.apps", "pods"))
			got, usage := "", (*exit.Error)(nil)
			if err != nil {
				got = err.Error()
			}
			if got != row.err || out.String() != row.said || err != nil && !errors.As(err, &usage) {
				t.Errorf("%s: %q, %q, want %q, %q", row.retention, got, out.String(), row.err, row.said)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
