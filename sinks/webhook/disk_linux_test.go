package webhook_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keepwatch/keepwatch/sinks/webhook"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// TestFullDisk refuses events while the disk of the dead letters is full: the event is sent again until its dead letter
// is stored, which is a whole line, also behind a part of one.
func TestFullDisk(t *testing.T) {
	disk := sinktest.MountDisk(t, 64)
	file, filler := filepath.Join(disk, "dead"), filepath.Join(disk, "filler")
	if err := os.WriteFile(file, []byte(`{"torn`), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		refuses := false
		transport := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if refuses {
				w.WriteHeader(422)
				fmt.Fprint(w, strings.Repeat("no ", 300))
			}
		}))
		r := open(t, "http://receiver", webhook.Options{Mode: webhook.Structured, Transport: transport, DeadLetters: file})
		refuses = true
		sinktest.FillDisk(t, filler)
		for range 20 { // the page of the file has room for some letters
			err := r.Write(t.Context(), batch("a"))
			if errors.As(err, new(*sink.Unavailable)) && strings.Contains(err.Error(), "no space left on device") {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if err := r.Write(t.Context(), batch("last")); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if lines[0] != `{"torn` {
			t.Errorf("the first line is %q", lines[0])
		}
		found := false
		for _, line := range lines[1:] {
			found = found || strings.Contains(line, `"id":"uid-last/7"`) && strings.HasPrefix(line, "{") &&
				strings.HasSuffix(line, "}")
		}
		if !found {
			t.Errorf("the last letter is missing: %s", text)
		}
	})
}
