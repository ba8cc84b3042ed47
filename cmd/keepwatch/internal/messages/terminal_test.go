package messages

import (
	"os"
	"testing"

	"golang.org/x/term"
)

// A terminal without escape sequences, such as that of an editor or of a build, is written to as a file is.
func TestRedraws(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil || !term.IsTerminal(int(terminal.Fd())) {
		t.Skip("no terminal can be made here:", err)
	}
	defer terminal.Close()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for kind, want := range map[string]bool{"xterm-256color": true, "dumb": false, "": false} {
		t.Setenv("TERM", kind)
		if got := Redraws(terminal); got != want {
			t.Errorf("TERM=%s: %v", kind, got)
		}
		if Redraws(file) {
			t.Errorf("TERM=%s: a file is a terminal", kind)
		}
	}
}
