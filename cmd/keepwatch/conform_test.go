package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/conform"
)

func TestConformCommand(t *testing.T) {
	cluster(t)
	small := []string{"conform", "--watchers", "8", "--writes", "60", "-o"}
	code, stdout, stderr := execute(t, append(small, "json", "--disturb", "echo disturbed")...)
	if code != 0 || strings.Count(stderr, "disturbed\n") != 2 || !strings.Contains(stderr, "list.newest: kept\n") {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	var report struct {
		Results []struct {
			Rule    conform.Rule
			Verdict string
		}
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatal(err)
	}
	for _, one := range report.Results {
		if one.Verdict != "kept" {
			t.Errorf("%s is %s", one.Rule.ID, one.Verdict)
		}
	}
	if code, stdout, stderr := execute(t, append(small, "table", "--disturb", "exit 3")...); code != 1 || stdout != "" || !strings.Contains(stderr, "the disturbance failed: exit status 3") {
		t.Errorf("a disturbance that fails: exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if code, _, stderr := execute(t, "conform", "-n", "missing"); code != 1 || !strings.Contains(stderr, `namespaces "missing" not found`) {
		t.Errorf("a missing namespace: exit %d, stderr %q", code, stderr)
	}
}

func TestConformUsage(t *testing.T) {
	for _, args := range [][]string{{"-o", "yaml"}, {"--watchers", "0"}, {"--writes", "-1"}, {"argument"}, {"--seed", "x"}} {
		code, stdout, stderr := execute(t, append([]string{"conform"}, args...)...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, "keepwatch: ") {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}
