package kube

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch"
)

// exchangeOf returns an exchange whose response is text.
func exchangeOf(text string, limit int64) *exchange {
	return exchangeReading(strings.NewReader(text), limit)
}

func exchangeReading(r io.Reader, limit int64) *exchange {
	ctx := context.Background()
	requestCtx, cancel := context.WithCancelCause(ctx)
	idle := &idleTimer{limit: time.Hour, cancel: cancel}
	return &exchange{op: "read text", callerCtx: ctx, requestCtx: requestCtx, idle: idle, body: &body{
		ReadCloser: io.NopCloser(r), idle: idle, cancel: cancel, limit: limit, allowed: limit,
	}}
}

func readPage(text string, limit int64) (keepwatch.Page, *keepwatch.Failure) {
	x := exchangeOf(text, limit)
	page, err := newPageBuilder(x, builder{}).page()
	if err != nil {
		return keepwatch.Page{}, x.contentFailure(err)
	}
	return page, nil
}

func readFrames(text string, limit int64) ([]event, *keepwatch.Failure) {
	f := (&Source{}).frames(exchangeOf(text, limit), 0)
	var events []event
	for {
		e, failure := f.next()
		if failure != nil {
			return events, failure
		}
		events = append(events, e)
	}
}
