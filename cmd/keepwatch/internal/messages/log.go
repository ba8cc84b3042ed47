package messages

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"unicode"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
)

// Program is the name of the program, with which messages begin.
const Program = "keepwatch"

// The values of --log-format.
const (
	Text = "text"
	JSON = "json"
)

// Log is the log of a process, on stderr: messages of the command, and errors of libraries. It is the value of
// --log-format.
type Log struct {
	stderr io.Writer
	format string
}

func New(stderr io.Writer) *Log { return &Log{stderr, Text} }

func (l *Log) String() string { return l.format }
func (l *Log) Type() string   { return "format" }

func (l *Log) Set(format string) error {
	if format != Text && format != JSON {
		return fmt.Errorf("want %s or %s", Text, JSON)
	}
	l.format = format
	return nil
}

// Writer returns where the command writes its messages: stderr itself as text, since a command looks whether that is a
// terminal.
func (l *Log) Writer() io.Writer {
	if l.format == JSON {
		return jsonMessages{slog.New(l.handler(slog.LevelInfo))}
	}
	return l.stderr
}

// handler returns a log of records that are at least as severe as level.
func (l *Log) handler(level slog.Level) slog.Handler {
	options := &slog.HandlerOptions{Level: level}
	if l.format == JSON {
		return slog.NewJSONHandler(l.stderr, options)
	}
	return slog.NewTextHandler(l.stderr, options)
}

// Fail writes the reason why the program of a name ends. help is the command whose help is of use.
func (l *Log) Fail(name, help, reason string, code int) {
	if l.format == JSON {
		slog.New(l.handler(slog.LevelError)).Error(reason, "exit", code)
		return
	}
	fmt.Fprintln(l.stderr, name+": "+reason)
	if code == exit.CodeUsage {
		fmt.Fprintf(l.stderr, "See '%s --help'.\n", help)
	}
}

// jsonMessages logs what one Write writes as one message, which can have several lines. Concurrent use is safe.
type jsonMessages struct{ log *slog.Logger }

func (m jsonMessages) Write(p []byte) (int, error) {
	if message := strings.TrimSpace(string(p)); message != "" {
		m.log.Info(strings.TrimPrefix(message, Program+": "))
	}
	return len(p), nil
}

// plain replaces what could control a terminal: servers word many errors.
func plain(message string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, message)
}

// Indented returns a message without what could control a terminal: servers word many errors. The lines after the first
// are indented, so that none looks like another message.
func Indented(message string) string {
	return strings.ReplaceAll(strings.TrimRight(plain(message), "\n"), "\n", "\n  ")
}

// Line returns a message as one line without what could control a terminal.
func Line(message string) string { return strings.ReplaceAll(plain(message), "\n", " ") }

// SharedWriter is written to by several goroutines.
type SharedWriter struct {
	mu  sync.Mutex
	Out io.Writer
}

func (w *SharedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Out.Write(p)
}
