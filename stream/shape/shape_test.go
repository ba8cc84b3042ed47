package shape_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/shape"
)

// thing is an object with a given text.
type thing struct{ text string }

func (o thing) Key() keepwatch.Key           { return keepwatch.Key{Namespace: "shop", Name: "web"} }
func (o thing) UID() keepwatch.UID           { return `u"1` }
func (o thing) Revision() keepwatch.Revision { return 7 }
func (o thing) JSON() []byte                 { return []byte(o.text) }
func (o thing) Metadata() []byte             { return o.JSON() }

func event(kind keepwatch.ChangeType, text string) stream.Event {
	c := keepwatch.Change{Type: kind, Revision: 7, Object: thing{text}}
	return stream.Event{Type: kind, Revision: 7, ID: c.ID(), Object: thing{text}}
}

var origin = shape.Origin{
	ID:    stream.Identity{Resource: "pods", Namespace: "shop", Cluster: stream.Cluster{Server: "https://h"}},
	Epoch: 2, Time: time.UnixMilli(1764000000000),
}

const sourceText = `"source":{"version":"1","connector":"keepwatch","name":"https://h","ts_ms":1764000000000,"snapshot":"false","db":"kubernetes","table":"pods",` +
	`"namespace":"shop","object":"web","uid":"u\"1","id":"u\"1/7","revision":"7","epoch":2}`

func TestShapes(t *testing.T) {
	deleted := strings.Replace(sourceText, `u\"1/7`, `u\"1/7/deleted`, 1)
	for _, tt := range []struct {
		name             string
		message          stream.Message
		events, debezium string
	}{
		{"added", event(keepwatch.Added, "{\n\"a\": \"x\\n\"\n}"),
			`{"type":"ADDED","revision":"7","id":"u\"1/7","resource":"pods","object":{"a":"x\n"}}`,
			`{"before":null,"after":{"a":"x\n"},` + sourceText + `,"op":"c","ts_ms":1764000000000}`},
		{"modified", event(keepwatch.Modified, `{}`),
			`{"type":"MODIFIED","revision":"7","id":"u\"1/7","resource":"pods","object":{}}`,
			`{"before":null,"after":{},` + sourceText + `,"op":"u","ts_ms":1764000000000}`},
		{"deleted", event(keepwatch.Deleted, `{}`),
			`{"type":"DELETED","revision":"7","id":"u\"1/7/deleted","resource":"pods","object":{}}`,
			`{"before":{},"after":null,` + deleted + `,"op":"d","ts_ms":1764000000000}`},
		{"synced", stream.Synced{Revision: 9, Count: 3},
			`{"type":"SYNCED","revision":"9","resource":"pods","namespace":"shop","count":3}`, "keepwatch.synced"},
		{"gap", stream.Gap{From: 3, To: 9, Reason: keepwatch.GapRewind},
			`{"type":"GAP","from":"3","to":"9","reason":"rewind","resource":"pods","namespace":"shop"}`, "keepwatch.gap"},
		{"bookmark", stream.Bookmark{Revision: 9}, `{"type":"BOOKMARK","revision":"9","resource":"pods","namespace":"shop"}`,
			"keepwatch.bookmark"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := shape.Events.Append([]byte("before "), origin, tt.message)
			if err != nil || string(got) != "before "+tt.events {
				t.Errorf("got %s, %v, want %s", got, err, tt.events)
			}
			got, err = shape.Debezium.Append(nil, origin, tt.message)
			if err != nil || !json.Valid(got) {
				t.Fatalf("%s, %v", got, err)
			}
			if strings.HasPrefix(tt.debezium, "{") {
				if string(got) != tt.debezium {
					t.Errorf("got  %s\nwant %s", got, tt.debezium)
				}
				return
			}
			var envelope struct {
				Op      string
				Message struct{ Prefix, Content string }
			}
			err = json.Unmarshal(got, &envelope)
			content, decodeErr := base64.StdEncoding.DecodeString(envelope.Message.Content)
			if err != nil || decodeErr != nil || envelope.Op != "m" || envelope.Message.Prefix != tt.debezium ||
				string(content) != tt.events {
				t.Errorf("%s: %s, %v", got, content, err)
			}
		})
	}
}

// TestSnapshot checks an object of a first list.
func TestSnapshot(t *testing.T) {
	o := origin
	o.Snapshot, o.ID.Cluster.UID = true, "c1"
	got, err := shape.Debezium.Append(nil, o, event(keepwatch.Added, `{}`))
	if err != nil || !strings.Contains(string(got), `"op":"r"`) || !strings.Contains(string(got), `"name":"c1"`) ||
		!strings.Contains(string(got), `"snapshot":"true"`) {
		t.Errorf("%s, %v", got, err)
	}
}

func TestErrors(t *testing.T) {
	for _, s := range []shape.Shape{shape.Events, shape.Debezium} {
		for _, kind := range []keepwatch.ChangeType{keepwatch.Added, keepwatch.Deleted} {
			if got, err := s.Append(nil, origin, event(kind, "{\n")); err == nil || !strings.Contains(err.Error(), "shop/web") {
				t.Errorf("%v: %s, %v", s, got, err)
			}
		}
	}
	if _, err := shape.Parse("avro"); err == nil || err.Error() != `the shape must be events or debezium, not "avro"` {
		t.Error(err)
	}
	for _, name := range []string{"events", "debezium"} {
		if s, err := shape.Parse(name); err != nil || s.String() != name {
			t.Error(s, err)
		}
	}
}

// FuzzAppend checks that any object's text becomes one line of valid JSON, or an error.
func FuzzAppend(f *testing.F) {
	f.Add(`{"a":1}`)
	f.Add("{\"a\":\r\n[\"\u2028\"]}")
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return // a source's objects are valid
		}
		for _, s := range []shape.Shape{shape.Events, shape.Debezium} {
			got, err := s.Append(nil, origin, event(keepwatch.Added, text))
			if err != nil || !json.Valid(got) || strings.ContainsAny(string(got), "\r\n") {
				t.Errorf("%s, %v", got, err)
			}
		}
	})
}
