package main

import (
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/controlplane"
)

func TestWatchHistory(t *testing.T) {
	for text, want := range map[string]controlplane.WatchHistory{
		"64Mi,15m": {Bytes: 64 << 20, Age: 15 * time.Minute},
		"15m":      {Age: 15 * time.Minute},
		"1Gi":      {Bytes: 1 << 30},
		"1h, 500k": {Bytes: 500_000, Age: time.Hour},
	} {
		var got controlplane.WatchHistory
		if err := (watchHistory{&got}).Set(text); err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a", "-1m", "0", "15m,16m", "1Gi,2Gi", "1Gi,", "-1Gi"} {
		got := controlplane.WatchHistory{Bytes: 1}
		if err := (watchHistory{&got}).Set(text); err == nil || got.Bytes != 1 {
			t.Errorf("%q is %v, without an error", text, got)
		}
	}
	if s := (watchHistory{&controlplane.WatchHistory{Bytes: 64 << 20, Age: time.Minute}}).String(); s != "64Mi,1m0s" {
		t.Errorf("shown as %q", s)
	}
}
