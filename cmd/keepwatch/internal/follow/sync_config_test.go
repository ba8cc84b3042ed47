package follow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzSyncFile checks that any file is accepted, or refused with one line.
func FuzzSyncFile(f *testing.F) {
	f.Add([]byte("to: sqlite:x.db\nresources: [{resource: pods, fields: [spec], redact: ['a[0]'], selector: a=b}]"))
	f.Add([]byte("to: postgres://h/d\nretention: 1h\nresources:\n- resource: pods\n"))
	f.Add([]byte("sinks: [{to: 'files:d', compress: gzip}, {name: b, to: 'nats://h/S'}]\nresources:\n- resource: pods\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		name := filepath.Join(t.TempDir(), "sync.yaml")
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		o := &syncOptions{file: name}
		switch settings, err := o.complete(t.Context(), nil); {
		case err != nil && strings.ContainsAny(err.Error(), "\r\n"):
			t.Errorf("%q is refused with several lines: %q", text, err)
		case err == nil:
			names := map[string]bool{}
			for _, sink := range settings.all() {
				names[sink.Name] = true
				if sink.To == "" || sink.Name == "" {
					t.Errorf("%q is accepted, and a sink is %+v", text, sink)
				}
			}
			if len(names) != len(settings.all()) || len(settings.Resources) == 0 {
				t.Errorf("%q is accepted", text)
			}
		}
	})
}
