package kafka

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// TestUserWithoutPassword refuses an address that no broker could accept.
func TestUserWithoutPassword(t *testing.T) {
	for _, address := range []string{"kafka://u@h/a", "kafka://u:@h/a"} {
		if _, err := parse(address, Options{}); err == nil ||
			!strings.Contains(err.Error(), "give kafka://USER:PASSWORD@HOST, or the parameter password-file") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestLongNames gives every stream a topic of its own that Kafka accepts, also those with the longest names of types.
func TestLongNames(t *testing.T) {
	parsed, err := parse("kafka://h/k8s.{resource}.{namespace}", Options{})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("widgets.", 31) + "com" // 251 bytes
	var streams []sink.Stream
	for _, id := range []stream.Identity{{Resource: long}, {Resource: long, Namespace: "shop"}, {Resource: "x" + long[1:]},
		{Resource: "pods", Namespace: "shop"}} {
		streams = append(streams, sink.Stream{ID: id})
	}
	names, err := parsed.topicsOf(streams)
	if err != nil || len(names) != len(streams) || names[len(names)-1] == "" || !slices.Contains(names, "k8s.pods.shop") {
		t.Errorf("%q, %v", names, err)
	}
}

// TestPlainNeedsTLS authenticates by PLAIN. Without TLS, only brokers on this machine receive the password.
func TestPlainNeedsTLS(t *testing.T) {
	for _, row := range []struct {
		address, broker string
		sent            bool
	}{
		{"kafka://u:pa55word@kafka.example.com:9092/a", "kafka.example.com:9092", false},
		{"kafka://u:pa55word@127.0.0.1:9092/a", "10.0.0.1:9092", false}, // which the first broker has named
		{"kafka://u:pa55word@127.0.0.1:9092/a", "127.0.0.1:9092", true},
		{"kafka://u:pa55word@localhost:9092/a", "localhost:9092", true},
		{"kafka://u:pa55word@[::1]:9092/a", "[::1]:9092", true},
		{"kafka://u:pa55word@kafka.example.com:9092/a?tls=true", "kafka.example.com:9092", true},
	} {
		parsed, err := parse(row.address, Options{})
		if err != nil {
			t.Fatal(err)
		}
		client, err := kgo.NewClient(parsed.options...)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		mechanisms := client.OptValue(kgo.SASL).([]sasl.Mechanism)
		at := slices.IndexFunc(mechanisms, func(m sasl.Mechanism) bool { return m.Name() == "PLAIN" })
		_, text, err := mechanisms[at].Authenticate(t.Context(), row.broker)
		if sent := strings.Contains(string(text), "pa55word"); sent != row.sent {
			t.Errorf("%s, broker %s: the password is sent: %v", row.address, row.broker, sent)
		}
		// A broker that offers something else for a moment does not end a sync that runs.
		if starting, running := (&Sink{}).failure(err), (&Sink{opened: true}).failure(err); !row.sent &&
			(errors.As(starting, new(*sink.Unavailable)) || !errors.As(running, new(*sink.Unavailable))) {
			t.Errorf("%s, broker %s: at the start %v, later %v", row.address, row.broker, starting, running)
		}
		if !row.sent && (err == nil || !strings.Contains(err.Error(), "add tls=true or ca=FILE")) {
			t.Errorf("%s, broker %s: %v", row.address, row.broker, err)
		}
	}
}
