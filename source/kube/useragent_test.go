package kube

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	other := debug.Module{Path: "example.com/other", Version: "v9.9.9"}
	for want, info := range map[string]debug.BuildInfo{
		"v1.2.3": {Main: debug.Module{Path: module, Version: "v1.2.3"}, Deps: []*debug.Module{&other}},
		"v0.4.0": {Main: other, Deps: []*debug.Module{&other, {Path: module, Version: "v0.4.0"}}},
		"devel":  {Main: debug.Module{Path: module, Version: "(devel)"}},
	} {
		if got := version(&info); got != want {
			t.Errorf("version is %q, want %q", got, want)
		}
	}
	if got := version(&debug.BuildInfo{Main: other}); got != "devel" {
		t.Errorf("a build without the module is %q", got)
	}
}
