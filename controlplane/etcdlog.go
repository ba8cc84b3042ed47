package controlplane

import (
	"context"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// etcdLog is what etcd logs to. Its lines are about clusters in production, or retried by itself, and
// dropped. But its two ways to end the process, fatal and panic, become an error for whoever runs it.
type etcdLog struct {
	// failed ends with the first fatal message as its cause.
	failed context.Context
	fail   context.CancelCauseFunc
}

func newEtcdLog() *etcdLog {
	l := &etcdLog{}
	l.failed, l.fail = context.WithCancelCause(context.Background())
	return l
}

// zap is the log in the form etcd wants. After a fatal message the goroutine ends, not the process.
func (l *etcdLog) zap() *zap.Logger {
	return zap.New(l, zap.WithFatalHook(zapcore.WriteThenGoexit), zap.WithPanicHook(zapcore.WriteThenGoexit))
}

func (l *etcdLog) Enabled(level zapcore.Level) bool { return level > zapcore.ErrorLevel }

func (l *etcdLog) With([]zapcore.Field) zapcore.Core { return l }

func (l *etcdLog) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(entry.Level) {
		return checked.AddCore(entry, l)
	}
	return checked
}

func (l *etcdLog) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	l.fail(newFatalError(entry, fields))
	return nil
}

func (l *etcdLog) Sync() error { return nil }

// fatalError is what etcd ended for: its message, in one line with the error it is about, if there is one.
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
