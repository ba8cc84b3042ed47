package messages

import (
	"io"
	"os"
	"runtime"

	"golang.org/x/term"
)

// Redraws reports whether out is a terminal that can draw lines again: it knows escape sequences, as far as its type
// says. Windows has no types of terminals.
func Redraws(out io.Writer) bool {
	file, ok := out.(*os.File)
	kind := os.Getenv("TERM")
	return ok && term.IsTerminal(int(file.Fd())) && kind != "dumb" && (kind != "" || runtime.GOOS == "windows")
}
