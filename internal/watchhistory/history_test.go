package watchhistory

import (
	"testing"
	"time"
)

func TestHistory(t *testing.T) {
	for text, want := range map[string]History{
		"64Mi,15m": {Bytes: 64 << 20, Age: 15 * time.Minute},
		"15m":      {Age: 15 * time.Minute},
		"1Gi":      {Bytes: 1 << 30},
		"1h, 500k": {Bytes: 500_000, Age: time.Hour},
	} {
		var got History
		if err := got.Set(text); err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a", "-1m", "0", "15m,16m", "1Gi,2Gi", "1Gi,", "-1Gi"} {
		got := History{Bytes: 1}
		if err := got.Set(text); err == nil || got.Bytes != 1 {
			t.Errorf("%q is %v, without an error", text, got)
		}
	}
	if s := (&History{Bytes: 64 << 20, Age: time.Minute}).String(); s != "64Mi,1m0s" {
		t.Errorf("shown as %q", s)
	}
}
