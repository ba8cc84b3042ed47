package controlplane

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// etcdLog passes etcd's errors on as short lines, and turns its two ways to end the process (fatal
// and panic) into an error for whoever runs it. Its warnings are about clusters in production, and
// dropped.
type etcdLog struct {
	logger *slog.Logger
	// failed ends with the first fatal message as its cause.
	failed context.Context
	fail   context.CancelCauseFunc
	// running is false while etcd starts, when an error is told once, as the reason of the failure,
	// and while it ends, when closed listeners are errors to it.
	running atomic.Bool
}

func newEtcdLog(logger *slog.Logger) *etcdLog {
	l := &etcdLog{logger: logger}
	l.failed, l.fail = context.WithCancelCause(context.Background())
	return l
}

func (l *etcdLog) started() { l.running.Store(true) }
func (l *etcdLog) ended()   { l.running.Store(false) }

// zap is the log in the form etcd wants. After a fatal message the goroutine ends, not the process.
func (l *etcdLog) zap() *zap.Logger {
	return zap.New(l, zap.WithFatalHook(zapcore.WriteThenGoexit), zap.WithPanicHook(zapcore.WriteThenGoexit))
}

func (l *etcdLog) Enabled(level zapcore.Level) bool { return level >= zapcore.ErrorLevel }

func (l *etcdLog) With([]zapcore.Field) zapcore.Core { return l }

func (l *etcdLog) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(entry.Level) {
		return checked.AddCore(entry, l)
	}
	return checked
}

func (l *etcdLog) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	message := oneLine(entry, fields)
	if entry.Level > zapcore.ErrorLevel {
		l.fail(errors.New(message))
		return nil
	}
	if l.running.Load() {
		l.logger.Error("etcd: " + message)
	}
	return nil
}

func (l *etcdLog) Sync() error { return nil }

// oneLine is the message and the error it is about, if there is one.
func oneLine(entry zapcore.Entry, fields []zapcore.Field) string {
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			return entry.Message + ": " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
	}
	return entry.Message
}
