package history

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// pod is an object of a stream.
type pod struct {
	key      keepwatch.Key
	revision keepwatch.Revision
}

func (p pod) Key() keepwatch.Key           { return p.key }
func (p pod) UID() keepwatch.UID           { return keepwatch.UID(p.key.Name) }
func (p pod) Revision() keepwatch.Revision { return p.revision }
func (p pod) Metadata() []byte             { return []byte(`{}`) }
func (p pod) JSON() []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"resourceVersion":"%d"}}`, p.key.Name,
		p.revision)
}

// TestStreamsOfNamespaces shows, with all namespaces, the objects and gaps of each stream of one namespace, and of a
// namespace its own.
func TestStreamsOfNamespaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{})
	var streams []sink.Stream
	namespaces := []string{"shop", "web"}
	for _, namespace := range namespaces {
		streams = append(streams, sink.Stream{Type: &sink.Type{Version: "v1", Kind: "Pod", Namespaced: true},
			ID: stream.Identity{Cluster: stream.Cluster{Server: "s"}, Resource: "pods", Namespace: namespace}})
	}
	if _, err := s.Open(t.Context(), streams); err != nil {
		t.Fatal(err)
	}
	progress := make([]sink.Progress, len(streams))
	now := time.Now().UTC().Truncate(time.Millisecond).Add(-time.Hour)
	write := func(cursor keepwatch.Revision, count uint64, messages func(i int) []stream.Message) {
		now = now.Add(time.Second)
		batch := sink.Batch{Time: now}
		for i := range streams {
			p := stream.Piece{Messages: messages(i), Cursor: cursor, Count: count, Position: []byte(`{}`)}
			piece := sink.Piece{Stream: i, Piece: p, Before: progress[i], After: progress[i].After(p)}
			progress[i] = piece.After
			batch.Pieces = append(batch.Pieces, piece)
		}
		if err := s.Write(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	write(5, 0, func(int) []stream.Message { return []stream.Message{stream.Synced{Revision: 5}} })
	write(9, 1, func(i int) []stream.Message {
		key := keepwatch.Key{Namespace: namespaces[i], Name: "in-" + namespaces[i]}
		return []stream.Message{stream.Event{Type: keepwatch.Added, Revision: keepwatch.Revision(8 + i),
			Object: pod{key, keepwatch.Revision(8 + i)}}}
	})
	write(20, 1, func(int) []stream.Message {
		return []stream.Message{stream.Gap{From: 9, To: 20, Reason: keepwatch.GapExpired},
			stream.Synced{Revision: 20, Count: 1}}
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"log", "--since", "revision/5"}, {"log", "pods"}, {"diff", "--at", "revision/5"}, {"diff", "pods", "--at", "revision/5"},
	} {
		for scope, all := range map[string]bool{"-A": true, "-n=web": false} {
			var out, stderr bytes.Buffer
			cmd := NewCommand()
			cmd.SetArgs(append(command, scope, "--from", "sqlite:"+path))
			cmd.SetOut(&out)
			cmd.SetErr(&stderr)
			err := cmd.ExecuteContext(t.Context())
			shop, web := strings.Contains(out.String(), "in-shop"), strings.Contains(out.String(), "in-web")
			if err != nil || !web || shop != all || stderr.Len() > 0 {
				t.Errorf("%v %s: %s%s%v", command, scope, out.String(), stderr.String(), err)
			}
			if command[0] != "log" {
				continue
			}
			for namespace, shown := range map[string]bool{"shop": all, "web": true} {
				gap := regexp.MustCompile(`9 .* GAP +(pods/)?` + namespace + ` `)
				if gap.MatchString(out.String()) != shown {
					t.Errorf("%v %s: the gap of %s: %s", command, scope, namespace, out.String())
				}
			}
		}
	}
}
