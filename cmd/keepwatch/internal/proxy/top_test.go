package proxy

import (
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/server/proxy"
)

// What does not fit into a terminal is left out.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		width, height int
		want          string
	}{
		{80, 24, "one\ntwo\nthree"},
		{4, 3, "one\ntwo\nthr"},
		{80, 2, "one\n2 more lines: enlarge the terminal"},
		{3, 1, "3 "},
		{0, 0, "one\ntwo\nthree"}, // a terminal that does not say
	} {
		if got := fit("one\ntwo\nthree\n", c.width, c.height); got != c.want {
			t.Errorf("%d × %d: %q", c.width, c.height, got)
		}
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1.0Ki", 1536 << 10: "1.5Mi", 3 << 30: "3.0Gi"} {
		if got := proxy.Size(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

// The reasons of relists follow their number.
func TestRelists(t *testing.T) {
	for want, lists := range map[string]map[string]uint64{
		"0":                              {proxy.FirstList: 1},
		"1 (expired 1)":                  {proxy.FirstList: 1, "expired": 1},
		"3 (expired 2, stale replica 1)": {proxy.FirstList: 1, "stale replica": 1, "expired": 2},
	} {
		if got := (proxy.ResourceStatus{Lists: lists}).Relisted(); got != want {
			t.Errorf("%q instead of %q", got, want)
		}
	}
}

// Below the clients is what the reasons mean for which requests were forwarded.
func TestReasons(t *testing.T) {
	for want, reasons := range map[string]map[string]string{
		"\nREASON     WHAT IT MEANS\nencoding   a Table\nrequest    a write?\n": {"request": "a write\n", "encoding": "a Table"},
		"\nCLIENT   RECEIVED   REQUESTS   OPEN   15 MIN   FORWARDED   ADVICE\n": nil,
	} {
		var out strings.Builder
		if err := printTop(&out, proxy.Status{Reasons: reasons}); err != nil || !strings.HasSuffix(out.String(), want) {
			t.Errorf("%v, and the table does not end with %q:\n%s", err, want, &out)
		}
	}
}
