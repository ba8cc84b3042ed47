package sinktest

import (
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// TestClusters opens one sink for several clusters: it belongs to the first one, with all types. A UID that was known
// once counts also after runs that could not read it: a cluster that was built anew at the same address is another one.
func TestClusters(t *testing.T, s sink.Sink) {
	t.Helper()
	const foreign = "it has the objects of "
	for _, step := range []struct {
		name      string
		cluster   stream.Cluster
		resources string
		want      string // of the error; empty: accepted
	}{
		{"at first the UID cannot be read", stream.Cluster{Server: "a"}, "jobs pods secrets", ""},
		{"it is known", stream.Cluster{UID: "1", Server: "a"}, "pods secrets", ""},
		{"another address", stream.Cluster{UID: "1", Server: "b"}, "pods secrets", ""},
		{"it cannot be read any more", stream.Cluster{Server: "b"}, "pods secrets", ""},
		{"another cluster at the address", stream.Cluster{UID: "2", Server: "b"}, "pods", foreign},
		{"another cluster, another type", stream.Cluster{UID: "2", Server: "c"}, "nodes", foreign},
		{"a type that is followed no more", stream.Cluster{UID: "1", Server: "b"}, "nodes", ""},
		{"another cluster, the types before", stream.Cluster{UID: "2", Server: "c"}, "nodes", foreign},
		{"another address, and no UID", stream.Cluster{Server: "c"}, "nodes", foreign},
		{"the same again", stream.Cluster{UID: "1", Server: "b"}, "nodes pods secrets", ""},
	} {
		var streams []sink.Stream
		for resource := range strings.FieldsSeq(step.resources) {
			streams = append(streams, sink.Stream{ID: stream.Identity{Resource: resource, Cluster: step.cluster}})
		}
		_, err := TryOpen(t, s, streams)
		if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Fatalf("%s: %v, want %q", step.name, err, step.want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
