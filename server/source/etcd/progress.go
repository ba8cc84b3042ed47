package etcd

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// progressRetry is the interval of progress requests while a reader waits for a revision:
// etcd does not answer a request while it has events to send.
const progressRetry = 100 * time.Millisecond

// requestProgress makes the watch reach a revision although no change may follow.
func (w *watch) requestProgress(r keepwatch.Revision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requested = max(w.requested, r)
	if w.requested > w.Revision() {
		w.wakeProgressLoop()
	}
}

// wakeProgressLoop wakes progressLoop before its timer.
func (w *watch) wakeProgressLoop() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// progressLoop requests progress: at once while a reader waits for a revision, and
// periodically, so that a watch without changes shows that the connection works, and which
// revision the cluster has reached.
func (w *watch) progressLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.wake:
		case <-w.ctx.Done():
			return
		}
		send, wait := w.nextProgressRequest(time.Now())
		if send {
			w.sendProgressRequest()
		}
		timer.Reset(wait)
	}
}

// nextProgressRequest reports whether to send a request now, and how long to wait for the
// next check. At most one request per interval is sent, and none while the consumer does
// not read.
func (w *watch) nextProgressRequest(now time.Time) (send bool, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait = w.source.idleTimeout / 3
	if w.requested > w.Revision() {
		wait = min(wait, progressRetry)
	}
	if w.Full() {
		return false, wait
	}
	if since := now.Sub(w.lastRequest); since < wait {
		return false, wait - since
	}
	w.lastRequest = now
	return true, wait
}
