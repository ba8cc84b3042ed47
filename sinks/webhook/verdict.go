package webhook

import (
	"net/http"
	"strconv"
	"time"
)

// verdict is what to do about an answer. The set is closed: delivered, retry, split, refused, end.
type verdict int

const (
	delivered verdict = iota
	retry             // the same request again
	split             // fewer events in a request
	refused           // this event is not wanted: a dead letter
	end               // no event is wanted
)

// unsendable stands for the status of events of which no request can be made.
const unsendable = 0

// judge returns the verdict on an answer to a request of n events.
func judge(status, n int) verdict {
	switch {
	case status >= 200 && status < 300:
		return delivered
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly,
		status == http.StatusTooManyRequests:
		return retry
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound,
		status == http.StatusMethodNotAllowed, status == http.StatusProxyAuthRequired,
		status == http.StatusMisdirectedRequest:
		return retry // credentials and routes are repaired, and every event would be refused
	case status != unsendable && status < 400, status == http.StatusGone, status == http.StatusUnsupportedMediaType:
		return end
	case n > 1:
		return split
	}
	return refused
}

// maxRetryAfter bounds the wait that a receiver can ask for.
const maxRetryAfter = time.Hour

// retryAfter returns the wait of the header Retry-After: seconds, or a date. It returns zero without a valid one.
func retryAfter(header http.Header, now time.Time) time.Duration {
	text := header.Get("Retry-After")
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}
