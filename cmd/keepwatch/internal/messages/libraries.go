package messages

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// LogLibraries logs the errors of the Kubernetes libraries until ctx is done.
func LogLibraries(ctx context.Context, log *Log) {
	klog.SetSlogLogger(slog.New(libraryLog{log.handler(slog.LevelWarn), ctx}))
}

// libraryLog logs the errors of the Kubernetes libraries until ctx is done. It drops reports about
// clients' mistakes, and after ctx is done all reports, since the libraries report closing connections.
// klog logs their warnings at the level of information; they are dropped too.
type libraryLog struct {
	slog.Handler
	ctx context.Context
}

// Handle filters instead of Enabled, which klog doesn't call for errors.
func (l libraryLog) Handle(ctx context.Context, record slog.Record) error {
	if l.ctx.Err() != nil || isClientMistake(record.Message) {
		return nil
	}
	return l.Handler.Handle(ctx, record)
}

func (l libraryLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return libraryLog{l.Handler.WithAttrs(attrs), l.ctx}
}

func (l libraryLog) WithGroup(name string) slog.Handler {
	return libraryLog{l.Handler.WithGroup(name), l.ctx}
}
