package access

import (
	"time"
)

const (
	// Open watches are decided again when roles change, and once more after confirmedAfter: the API server that decides
	// may follow the roles later than the proxy. While changes go on, they are decided again every announcedEvery.
	confirmedAfter, announcedEvery = 500 * time.Millisecond, time.Second
	// reviewsApart is the average time between the decisions of open watches that an announcement causes, as long as they
	// take no longer than soon altogether.
	reviewsApart, soon = time.Millisecond, 500 * time.Millisecond
	// maxScopes bounds the namespaces of which changes are recorded apart. Beyond it a change counts for all.
	maxScopes = 10_000
)

// scope is what a change of roles is about: a namespace, or the cluster with all its namespaces. Numbers are those of
// permissions.number.
type scope struct {
	namespace string    // empty for the cluster
	changed   uint64    // the last change: no earlier decision counts
	renewed   uint64    // the last change or renewal: earlier decisions are asked for again
	settles   time.Time // until then API servers may still decide by what was before the last change
	settled   *time.Timer
	pending   *time.Timer // announces once more; nil if that is done for all changes
	// changedSince says that there was another change since pending began to run.
	changedSince bool
}

// scopes are the cluster, and the namespaces of which roles or bindings have changed recently. permissions.mu is locked
// for their methods.
type scopes struct {
	cluster    *scope
	namespaces map[string]*scope
}

func newScopes() scopes { return scopes{&scope{}, map[string]*scope{}} }

// changed returns the number of the last change that concerns a namespace.
func (s scopes) changed(namespace string) uint64 {
	if own := s.namespaces[namespace]; own != nil {
		return max(own.changed, s.cluster.changed)
	}
	return s.cluster.changed
}

// renewed returns the number of the last change or renewal that concerns a namespace.
func (s scopes) renewed(namespace string) uint64 {
	if own := s.namespaces[namespace]; own != nil {
		return max(own.renewed, s.cluster.renewed)
	}
	return s.cluster.renewed
}

// settles reports whether API servers may still decide about a namespace by what was before the last change.
func (s scopes) settles(namespace string) bool {
	now := time.Now()
	own := s.namespaces[namespace]
	return now.Before(s.cluster.settles) || own != nil && now.Before(own.settles)
}

// of returns the scope of a namespace, and of the cluster for the empty one.
func (s scopes) of(namespace string) *scope {
	found := s.namespaces[namespace]
	if namespace == "" || found == nil && len(s.namespaces) >= maxScopes {
		return s.cluster
	}
	if found == nil {
		found = &scope{namespace: namespace}
		s.namespaces[namespace] = found
	}
	return found
}

// forget drops all decisions about a namespace, because a role or a binding has changed in it, and all others if the
// namespace is empty.
func (p *permissions) forget(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of(namespace)
	p.number++
	s.changed, s.renewed = p.number, p.number
	if s.pending == nil {
		p.announce(s, soon)
		p.announceAgain(s, confirmedAfter)
	} else {
		s.changedSince = true
	}
	p.settleLater(s)
}

// renew lets decisions be asked for again, those about open watches within a time. p.mu is locked.
func (p *permissions) renew(s *scope, within time.Duration) {
	p.number++
	s.renewed = p.number
	p.announce(s, within)
}

// announce lets open watches be decided again, at different times if they are many. p.mu is locked.
func (p *permissions) announce(s *scope, within time.Duration) {
	concerned := map[string]map[*openRequest]struct{}{s.namespace: p.open[s.namespace]}
	if s == p.cluster {
		concerned = p.open
	}
	count := -1 // one alone has no reason to wait
	for _, open := range concerned {
		count += len(open)
	}
	within = min(within, time.Duration(max(count, 0))*reviewsApart)
	for _, open := range concerned {
		for r := range open {
			select {
			case r.announced <- within:
			default: // it will be decided later than now
			}
		}
	}
}

// announceAgain renews once more, and goes on while there are changes. p.mu is locked.
func (p *permissions) announceAgain(s *scope, after time.Duration) {
	s.pending = time.AfterFunc(after, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.renew(s, soon)
		s.pending = nil
		if s.changedSince {
			s.changedSince = false
			p.announceAgain(s, announcedEvery)
		}
	})
}

// settleLater lets settle run when API servers have followed the changes so far. p.mu is locked.
func (p *permissions) settleLater(s *scope) {
	if s.settled != nil {
		s.settled.Stop()
	}
	s.settles = time.Now().Add(settling)
	s.settled = time.AfterFunc(settling, func() { p.settle(s) })
}

// settle lets the decisions of the last second be asked for once more, those about open watches too.
func (p *permissions) settle(s *scope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(s.settles) { // there was another change meanwhile
		return
	}
	p.renew(s, settling)
	if s != p.cluster { // a decision from before the change counts for outageFor at most
		s.settled = time.AfterFunc(outageFor, func() { p.drop(s) })
	}
}

// drop forgets when a namespace has changed.
func (p *permissions) drop(s *scope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(s.settles) >= outageFor {
		delete(p.namespaces, s.namespace)
	}
}

// observe records whether changes are seen. Decisions are used for longer only after settling: the last changes
// may be recent. Open requests that count on seeing the changes learn that they are not seen. It reports whether this
// is another answer than before.
func (p *permissions) observe(observed bool) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = observed != p.observed
	switch {
	case !changed:
	case observed:
		p.settleLater(p.cluster)
	case p.unseen != nil:
		close(p.unseen)
		p.unseen = nil
	}
	if changed {
		p.turned = time.Now()
	}
	p.observed = observed
	return changed
}

// untilUnseen returns a channel that is closed when changes are no longer seen.
func (p *permissions) untilUnseen() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unseen == nil {
		p.unseen = make(chan struct{})
	}
	return p.unseen
}

// isObserved reports whether changes are seen.
func (p *permissions) isObserved() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.observed
}

// observedSince reports whether changes are seen, and since when; zero if they have never been.
func (p *permissions) observedSince() (observed bool, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.observed, p.turned
}

// decidedFor is how long a decision is used while nothing changes.
func (p *permissions) decidedFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.observed {
		return knownFor
	}
	return unobservedFor
}

// opened records an open request. The request is decided again if that is due since the decision with a number.
func (p *permissions) opened(r *openRequest, number uint64) {
	namespace := r.attributes.GetNamespace()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[namespace] == nil {
		p.open[namespace] = map[*openRequest]struct{}{}
	}
	p.open[namespace][r] = struct{}{}
	if p.renewed(namespace) > number {
		r.announced <- 0
	}
}

// closed forgets an open request.
func (p *permissions) closed(r *openRequest) {
	namespace := r.attributes.GetNamespace()
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.open[namespace], r); len(p.open[namespace]) == 0 {
		delete(p.open, namespace)
	}
}

// close stops the timers.
func (p *permissions) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	stop := func(s *scope) {
		s.changedSince = false
		for _, timer := range []*time.Timer{s.settled, s.pending} {
			if timer != nil {
				timer.Stop()
			}
		}
	}
	stop(p.cluster)
	for _, s := range p.namespaces {
		stop(s)
	}
}
