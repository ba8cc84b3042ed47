package etcd

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// askAgain is when a request for progress is repeated for somebody who waits: etcd
// does not answer one while it has events to send.
const progressRetry = 100 * time.Millisecond

// want makes the watch reach a revision without waiting for a change.
func (w *watch) requestProgress(r keepwatch.Revision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requested = max(w.requested, r)
	if w.requested > w.Revision() {
		w.wakeProgressLoop()
	}
}

// remind makes tend look.
func (w *watch) wakeProgressLoop() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// tend asks for progress: at once for somebody who waits for it, and from time to
// time so that a quiet watch shows that it lives, and how far the cluster has come.
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

// overdue reports whether to ask for progress now, and when to look again. There is
// one request at a time on its way, and none while nobody reads the answers.
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
