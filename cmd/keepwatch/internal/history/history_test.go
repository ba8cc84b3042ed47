package history

import (
	"bytes"
	"testing"
)

// TestName shows no part of an address that may be a password.
func TestName(t *testing.T) {
	for address, want := range map[string]string{
		"sqlite:/data/state@home?.db":                       "sqlite:/data/state@home?.db",
		"postgres://u:secret@h:5432/db?password=secret":     "postgres://h:5432/db",
		"postgres://u:secret@h1:5432,h2:5433/db":            "postgres://h1:5432,h2:5433/db",
		"postgres://u:secret@/db?host=/run/postgresql":      "postgres:///db",
		"postgresql:///db?host=/run&user=u&password=secret": "postgresql:///db",
		"postgres:///?password=secret":                      "postgres:///",
	} {
		if got := Name(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// A list that is written element by element is the one that is written at once.
func TestDataList(t *testing.T) {
	for _, output := range []string{"json", "yaml"} {
		for _, elements := range [][]LoggedEvent{
			{}, {{Type: "ADDED", Revision: 5, Name: "a"}},
			{{Type: "ADDED", Revision: 5, Name: "<a>\n"}, {Type: "GAP", Revision: 7, Gap: &loggedGap{From: 7, To: 9}}},
		} {
			var got, want bytes.Buffer
			l := dataList{out: &got, output: output, name: "events"}
			for _, e := range elements {
				if err := l.add(e); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.end(); err != nil {
				t.Fatal(err)
			}
			if err := writeData(&want, output, map[string]any{"events": elements}); err != nil {
				t.Fatal(err)
			}
			if got.String() != want.String() {
				t.Errorf("%s:\n%s\nwant\n%s", output, got.String(), want.String())
			}
		}
	}
}

// A revision from before a restore of etcd says so: --at takes it for another moment.
func TestRevisionBesideAnEvent(t *testing.T) {
	for want, o := range map[string]*objectBeside{
		"<not stored>":                         nil,
		"<none>":                               {},
		"<unknown>":                            {Doubt: "in a gap"},
		"30":                                   {Revision: 30, At: "revision/30"},
		"41":                                   {Revision: 30, At: "revision/41"},
		"30 deleted?":                          {Revision: 30, At: "revision/30", Deleted: true, Doubt: "in a gap"},
		"30 before a restore of etcd":          {Revision: 30, Restored: true},
		"30 deleted? before a restore of etcd": {Revision: 30, Deleted: true, Doubt: "in a gap", Restored: true},
	} {
		if got, _ := o.text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What objects say neither ends a line nor controls a terminal.
func TestRows(t *testing.T) {
	var out bytes.Buffer
	writeRow(&out, 7, "a\tb\r\nc", "\x1b[2J\x1b]0;title\x07", "\u009b1m\x7f", "日本 é")
	if want := "7\ta b^M c\t^[[2J^[]0;title^G\t\\u009b1m^?\t日本 é\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
