package operator

import (
	"context"
	"testing"
	"time"
)

// A definition that gets or loses the endpoint of the status, while the operator runs, loses nothing that handlers
// write there.
func TestStatusEndpointChanges(t *testing.T) {
	for name, had := range map[string]bool{"added": false, "removed": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
				op := New("widgets.example.com")
				OnCreate(op, func(_ context.Context, r *thing) error {
					r.Patch.Status("phase", "Ready")
					r.Patch.Label("made", "true")
					return nil
				}, ID("make"))
				Timer(op, time.Minute, func(_ context.Context, r *thing) error {
					r.Patch.Status("beat", "yes")
					return nil
				}, ID("beat"), InitialDelay(20*time.Second))
				w.plain = had
				w.create("one", spec(1))
				k := widgetKind
				k.subresource = had
				r := startKind(t, w, op, w, k)
				time.Sleep(10 * time.Minute)
				status, _ := w.at("one")["status"].(map[string]any)
				if status["phase"] != "Ready" || status["beat"] != "yes" {
					t.Errorf("the status is %v; the patches are %v", status, w.patchesOf("one"))
				}
				if w.looks != 1 {
					t.Errorf("the server was asked %d times", w.looks)
				}
				_ = r.end()
			})
		})
	}
}
