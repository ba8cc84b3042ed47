package embeddedetcd

import (
	"context"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// fatalLog receives etcd's log. It drops all messages below fatal: they concern clusters in
// production, or operations that etcd retries. The two ways of etcd to exit the process, fatal and
// panic messages, end the goroutine that logs them, and become an error.
type fatalLog struct {
	// failed is done after the first fatal message, which is its cause.
	failed context.Context
	fail   context.CancelCauseFunc
}

func newFatalLog() *fatalLog {
	l := &fatalLog{}
	l.failed, l.fail = context.WithCancelCause(context.Background())
	return l
}

// zap returns the logger for etcd's configuration. A fatal message ends the goroutine instead of the process.
func (l *fatalLog) zap() *zap.Logger {
	return zap.New(l, zap.WithFatalHook(zapcore.WriteThenGoexit), zap.WithPanicHook(zapcore.WriteThenGoexit))
}

func (l *fatalLog) Enabled(level zapcore.Level) bool { return level > zapcore.ErrorLevel }

func (l *fatalLog) With([]zapcore.Field) zapcore.Core { return l }

func (l *fatalLog) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(entry.Level) {
		return checked.AddCore(entry, l)
	}
	return checked
}

func (l *fatalLog) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	l.fail(newFatalError(entry, fields))
	return nil
}

func (l *fatalLog) Sync() error { return nil }

// fatalError is the reason why etcd ended: its message and the error that it logged, in one line.
type fatalError struct {
	line  string
	cause error
}

func newFatalError(entry zapcore.Entry, fields []zapcore.Field) fatalError {
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			return fatalError{entry.Message + ": " + strings.ReplaceAll(err.Error(), "\n", " "), err}
		}
	}
	return fatalError{line: entry.Message}
}

func (e fatalError) Error() string { return e.line }

func (e fatalError) Unwrap() error { return e.cause }
