package etcd

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// askAgain is when a request for progress is repeated for somebody who waits: etcd
// does not answer one while it has events to send.
const askAgain = 100 * time.Millisecond

// want makes the watch reach a revision without waiting for a change.
func (w *watch) want(r keepwatch.Revision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = max(w.wanted, r)
	if w.wanted > w.Revision() {
		w.remind()
	}
}

// remind makes tend look.
func (w *watch) remind() {
	select {
	case w.due <- struct{}{}:
	default:
	}
}

// tend asks for progress: at once for somebody who waits for it, and from time to
// time so that a quiet watch shows that it lives, and how far the cluster has come.
func (w *watch) tend() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.due:
		case <-w.ctx.Done():
			return
		}
		ask, pause := w.overdue(time.Now())
		if ask {
			w.askProgress()
		}
		timer.Reset(pause)
	}
}

// overdue reports whether to ask for progress now, and when to look again. There is
// one request at a time on its way, and none while nobody reads the answers.
func (w *watch) overdue(now time.Time) (ask bool, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pause = w.source.idleTimeout / 3
	if w.wanted > w.Revision() {
		pause = min(pause, askAgain)
	}
	if w.Full() {
		return false, pause
	}
	if since := now.Sub(w.asked); since < pause {
		return false, pause - since
	}
	w.asked = now
	return true, pause
}
