package broker

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/shape"
)

func TestParseAddress(t *testing.T) {
	a, err := ParseAddress("kafka://sync:p%40ss,w@a:9092,[::1]:9093,c/k8s.{resource}?state=s%20t", "state", "tls")
	if err != nil {
		t.Fatal(err)
	}
	password, _ := a.User.Password()
	if !slices.Equal(a.Servers, []string{"a:9092", "[::1]:9093", "c"}) || a.User.Username() != "sync" ||
		password != "p@ss,w" ||
		a.Path != "k8s.{resource}" || a.Parameter("state") != "s t" || a.Parameter("tls") != "" {
		t.Errorf("%+v, password %q", a, password)
	}
	for text, want := range map[string]string{
		"kafka:a":                      "no ://",
		"kafka://":                     "no valid host",
		"kafka://a,,b/":                "no valid host",
		"kafka://a:b/":                 "no valid host",
		"kafka://u:secret@/x":          "no valid host",
		"kafka://u:sec%ret@a/x":        "must be percent-encoded",
		"kafka://a/x?state=1&state=2":  "more than once",
		"kafka://a/x?state=%zz":        "must be percent-encoded",
		"kafka://u:secret@a/x?sate=1":  `"sate" is not known: the parameters are state, tls`,
		"kafka://u:secret@a/%zz?tls=1": "must be percent-encoded",
	} {
		if _, err := ParseAddress(text, "state", "tls"); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	credentials := func(text string) (*Credentials, error) {
		t.Helper()
		a, err := ParseAddress(text, PasswordFile)
		if err != nil {
			t.Fatal(err)
		}
		return a.Credentials(nil)
	}
	if c, err := credentials("nats://h/S"); c != nil || err != nil {
		t.Errorf("without a user: %v, %v", c, err)
	}
	for written, want := range map[string]string{"s3cret": "s3cret", "s3cret\n": "s3cret", " s3cret \r\n": " s3cret ",
		"two\nlines\n": "two\nlines"} {
		write(written)
		c, err := credentials("nats://u@h/S?password-file=" + file)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Password(); got != want || err != nil {
			t.Errorf("%q is %q, %v", written, got, err)
		}
		write("rotated")
		if got, err := c.Password(); got != "rotated" || err != nil {
			t.Errorf("after a rotation: %q, %v", got, err)
		}
	}
	write("\n")
	for text, want := range map[string]string{
		"nats://h/S?password-file=" + file:          "the address has password-file, and no user: give nats://USER@HOST",
		"nats://u:s3cret@h/S?password-file=" + file: "the address has a password, and password-file: give one of them",
		"nats://u@h/S?password-file=" + file:        "is empty",
		"nats://u@h/S?password-file=/missing":       "password-file: open /missing: no such file",
	} {
		if _, err := credentials(text); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// FuzzParseAddress checks that no text makes it panic, and that no error has the password.
func FuzzParseAddress(f *testing.F) {
	f.Add("nats", "u:", "@h:1", "/S?a=b")
	f.Add("nats", "", "%", "?%")
	f.Fuzz(func(t *testing.T, scheme, before, after, tail string) {
		if strings.ContainsAny(scheme, "/?:") || strings.ContainsAny(before, "/?") {
			return
		}
		_, err := ParseAddress(scheme+"://"+before+"pa55word@"+after+tail, "a")
		if err != nil && strings.Contains(err.Error(), "pa55word") {
			t.Error(err)
		}
	})
}

func TestTemplate(t *testing.T) {
	template, err := ParseTemplate("k8s.{resource}.{namespace}{resource}", "resource", "namespace")
	if err != nil {
		t.Fatal(err)
	}
	if got := template.Expand(strings.ToUpper); got != "k8s.RESOURCE.NAMESPACERESOURCE" ||
		template.String() != "k8s.{resource}.{namespace}{resource}" {
		t.Errorf("%s is %s", template, got)
	}
	for text, want := range map[string]string{"{uid}": "{uid} is not known: they are {resource}, {namespace}",
		"a{": "a brace has no partner", "}a": "a brace has no partner", "{{resource}}": "a brace"} {
		if _, err := ParseTemplate(text, "resource", "namespace"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzTemplate checks that any text is refused, or expands to itself where placeholders stand for themselves.
func FuzzTemplate(f *testing.F) {
	for _, text := range []string{"k8s.{resource}", "{namespace}{resource}", "{}", "{{resource}}", "a}{"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		template, err := ParseTemplate(text, "resource", "namespace")
		if err != nil {
			if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), strconv.Quote(text)) {
				t.Errorf("the error is not one line with the template: %v", err)
			}
			return
		}
		got := template.Expand(func(name string) string {
			if name != "resource" && name != "namespace" {
				t.Errorf("the placeholder %q is not known", name)
			}
			return "{" + name + "}"
		})
		if got != text || template.String() != text {
			t.Errorf("%q is %q", text, got)
		}
	})
}

// TestEncode checks messages that concern no object; events are tested with the brokers.
func TestEncode(t *testing.T) {
	id := stream.Identity{Resource: "pods", Namespace: "shop"}
	for _, row := range []struct {
		message stream.Message
		want    string
	}{
		{stream.Gap{From: 1, To: 2, Reason: keepwatch.GapRewind},
			`{"type":"GAP","from":"1","to":"2","reason":"rewind","epoch":3,"resource":"pods","namespace":"shop"}`},
		{stream.Synced{Revision: 2},
			`{"type":"SYNCED","revision":"2","count":0,"epoch":3,"resource":"pods","namespace":"shop"}`},
	} {
		got, err := Encode(shape.Events, shape.Origin{ID: id, Epoch: 3}, row.message)
		if err != nil || string(got) != row.want || !json.Valid(got) {
			t.Errorf("%s, %v, want %s", got, err, row.want)
		}
	}
}

// TestOptions combines what a Go program gives with what the address says. Two answers to one question are an error.
func TestOptions(t *testing.T) {
	ask := func() (string, error) { return "asked", nil }
	for _, row := range []struct {
		address string
		shape   shape.Shape
		tls     *tls.Config
		ask     func() (string, error)
		want    string // the shape, the server name of TLS and the password; or the error
	}{
		{address: "kafka://h/x", want: `events "" ""`},
		{address: "kafka://h/x?shape=debezium", want: `debezium "" ""`},
		{address: "kafka://h/x", shape: shape.Debezium, want: `debezium "" ""`},
		{address: "kafka://h/x?shape=debezium", shape: shape.Debezium, want: `debezium "" ""`},
		{address: "kafka://h/x?shape=events", shape: shape.Debezium,
			want: "the address has shape=events, and the options have debezium"},
		{address: "kafka://h/x?shape=avro", shape: shape.Debezium, want: `not "avro"`},
		{address: "kafka://u@h/x", tls: &tls.Config{ServerName: "n"}, ask: ask, want: `events "n" "asked"`},
		{address: "kafka://h/x?tls=false", tls: &tls.Config{}, want: "the address has tls or ca, and the options have TLS"},
		{address: "kafka://h/x", ask: ask, want: "the options have a password, and the address no user"},
		{address: "kafka://u:p@h/x", ask: ask, want: "the address has a password, and the options have one"},
		{address: "kafka://u@h/x?password-file=/nowhere", ask: ask,
			want: "the address has a password, and the options have one"},
	} {
		a, err := ParseAddress(row.address, "shape", "tls", "ca", PasswordFile)
		if err != nil {
			t.Fatal(err)
		}
		in, shapeErr := a.Shape(row.shape)
		encryption, tlsErr := a.TLS(row.tls)
		c, credentialsErr := a.Credentials(row.ask)
		if err := errors.Join(shapeErr, tlsErr, credentialsErr); err != nil {
			if !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s: %v, want %q", row.address, err, row.want)
			}
			continue
		}
		var server, password string
		if encryption != nil {
			server = encryption.ServerName
		}
		if c != nil {
			password, _ = c.Password()
		}
		if got := fmt.Sprintf("%v %q %q", in, server, password); got != row.want {
			t.Errorf("%s: %s, want %s", row.address, got, row.want)
		}
	}
}

// TestIndex checks the objects of each stream of an index. Those of single namespaces are read from all objects once,
// however many namespaces are followed.
func TestIndex(t *testing.T) {
	x := NewIndex()
	for n := range 40 {
		x.Put("pods", stream.Entry{Key: keepwatch.Key{Namespace: fmt.Sprint(n % 4), Name: fmt.Sprint(n)}})
	}
	x.Remove("pods", keepwatch.Key{Namespace: "1", Name: "1"})
	x.Remove("nodes", keepwatch.Key{Name: "1"})
	of := func(resource, namespace string) *stream.Entries {
		return x.Entries(stream.Identity{Resource: resource, Namespace: namespace})
	}
	for namespace, want := range map[string]int{"": 39, "0": 10, "1": 9, "4": 0} {
		entries := of("pods", namespace)
		for e := range entries.All() {
			if namespace != "" && e.Key.Namespace != namespace {
				t.Errorf("in namespace %q: %v", namespace, e.Key)
			}
		}
		if entries.Len() != want || entries != of("pods", namespace) {
			t.Errorf("in namespace %q: %d objects, want %d", namespace, entries.Len(), want)
		}
	}
	if of("nodes", "").Len() != 0 || of("nodes", "a").Len() != 0 {
		t.Error("nodes that were never put")
	}
}
