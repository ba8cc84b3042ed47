package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// The values of --log-format.
const (
	textFormat = "text"
	jsonFormat = "json"
)

// messageLog is the log of a process, on stderr: messages of the command, and errors of libraries. It is the value of
// --log-format.
type messageLog struct {
	stderr io.Writer
	format string
}

func newMessageLog(stderr io.Writer) *messageLog { return &messageLog{stderr, textFormat} }

func (l *messageLog) String() string { return l.format }
func (l *messageLog) Type() string   { return "format" }

func (l *messageLog) Set(format string) error {
	if format != textFormat && format != jsonFormat {
		return fmt.Errorf("want %s or %s", textFormat, jsonFormat)
	}
	l.format = format
	return nil
}

// writer returns where the command writes its messages: stderr itself as text, since a command looks whether that is a
// terminal.
func (l *messageLog) writer() io.Writer {
	if l.format == jsonFormat {
		return jsonMessages{slog.New(l.handler(slog.LevelInfo))}
	}
	return l.stderr
}

// handler returns a log of records that are at least as severe as level.
func (l *messageLog) handler(level slog.Level) slog.Handler {
	options := &slog.HandlerOptions{Level: level}
	if l.format == jsonFormat {
		return slog.NewJSONHandler(l.stderr, options)
	}
	return slog.NewTextHandler(l.stderr, options)
}

// fail writes the reason why the program of a name ends. help is the command whose help is of use.
func (l *messageLog) fail(name, help, reason string, code int) {
	if l.format == jsonFormat {
		slog.New(l.handler(slog.LevelError)).Error(reason, "exit", code)
		return
	}
	fmt.Fprintln(l.stderr, name+": "+reason)
	if code == codeUsage {
		fmt.Fprintf(l.stderr, "See '%s --help'.\n", help)
	}
}

// jsonMessages logs what one Write writes as one message, which can have several lines. Concurrent use is safe.
type jsonMessages struct{ log *slog.Logger }

func (m jsonMessages) Write(p []byte) (int, error) {
	if message := strings.TrimSpace(string(p)); message != "" {
		m.log.Info(strings.TrimPrefix(message, keepwatchName+": "))
	}
	return len(p), nil
}
