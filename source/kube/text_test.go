package kube

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch"
)

// answered is an exchange whose answer is text.
func answered(text string, limit int64) *exchange {
	return answeredBy(strings.NewReader(text), limit)
}

func answeredBy(r io.Reader, limit int64) *exchange {
	ctx := context.Background()
	own, cancel := context.WithCancelCause(ctx)
	quiet := &silence{limit: time.Hour, cancel: cancel}
	return &exchange{op: "read text", ctx: ctx, own: own, silence: quiet, body: &body{
		ReadCloser: io.NopCloser(r), silence: quiet, cancel: cancel, limit: limit, until: limit,
	}}
}

func readPage(text string, limit int64) (keepwatch.Page, *keepwatch.Failure) {
	x := answered(text, limit)
	page, err := newLister(x, maker{}).page()
	if err != nil {
		return keepwatch.Page{}, x.unfit(err)
	}
	return page, nil
}

func readFrames(text string, limit int64) ([]event, *keepwatch.Failure) {
	f := (&Source{}).frames(answered(text, limit), 0)
	var events []event
	for {
		e, failure := f.next()
		if failure != nil {
			return events, failure
		}
		events = append(events, e)
	}
}
