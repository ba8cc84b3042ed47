package proxy

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch/reflector"
)

// Status is what a proxy shows of itself at /keepwatch/status.
type Status struct {
	Time   time.Time    `json:"time"`
	Server ServerStatus `json:"server"`
	// Memory is the bytes of the heap that the last garbage collection has found in use.
	Memory int64 `json:"memory"`
	// Saved are the requests that were answered from memory, by their verbs: get, list, watch.
	Saved map[string]uint64 `json:"saved"`
	// Reads are the reads of the resources with most bytes, and at the end those of all others.
	Reads []ReadsStatus `json:"reads"`
	// Recent are the reads of the last quarter of an hour, oldest first.
	Recent []RecentReads `json:"recent,omitempty"`
	// Reasons says for people what the reasons to forward requests mean that Reads and Clients have, and the advice.
	Reasons   map[string]string `json:"reasons"`
	Resources []ResourceStatus  `json:"resources"`
	// Unfollowed are the resources that Config.Cached names and that cannot be followed.
	Unfollowed []UnfollowedStatus `json:"unfollowed,omitempty"`
	// Clients are those that have received most, by their user agents.
	Clients []ClientStatus `json:"clients"`
}

// ServerStatus is the API server behind the proxy.
type ServerStatus struct {
	Address string `json:"address"`
	// Failing is since when it has not answered probes, or for a resource that is followed, nil while it does.
	Failing *time.Time `json:"failing,omitempty"`
}

// ResourceStatus is how a resource is followed in one representation.
type ResourceStatus struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	// Encoding is json or protobuf, and ends in ;drop=managedFields if the objects have none.
	Encoding string `json:"encoding"`
	// State is the reflector's, since Since.
	State reflector.State `json:"state"`
	Since time.Time       `json:"since"`
	// Confirmed is when the server has last confirmed that the state is current; nil before the first list.
	Confirmed *time.Time `json:"confirmed,omitempty"`
	Objects   int        `json:"objects"`
	Bytes     int64      `json:"bytes"`
	Watchers  int64      `json:"watchers"`
	// Lists are the lists from the server: the first, by the reason FirstList, and the others by the failures.
	Lists map[string]uint64 `json:"lists"`
}

// Name returns the resource's name as kubectl has it: deployments.apps.
func (r ResourceStatus) Name() string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}

// Relisted returns the number of lists after the first, and by each reason, for people.
func (r ResourceStatus) Relisted() string {
	again := maps.Clone(r.Lists)
	delete(again, FirstList)
	return Counts(again)
}

// FirstList is the reason of the first list in ResourceStatus.Lists.
const FirstList = "start"

// Status returns the proxy's status. It is safe for concurrent use.
func (p *Proxy) Status() Status {
	reads := p.savings.status()
	for i := range reads {
		reads[i].Recent = p.recent.status(reads[i].readsOf())
	}
	s := Status{
		Time: time.Now(), Server: ServerStatus{Address: p.forwarder.Address().String()}, Memory: int64(liveBytes()),
		Saved: saved(reads), Reads: heaviestReads(reads), Recent: p.recent.status(readsOf{}),
		Reasons:   map[string]string{},
		Resources: p.caches.status(), Unfollowed: p.caches.unfollowedStatus(), Clients: p.clients.heaviest(),
	}
	for _, r := range s.Reads {
		s.explain(r.Why)
	}
	for i := range s.Clients {
		c := &s.Clients[i]
		c.Recent = p.recent.status(c.readsOf())
		s.explain(c.Why)
		for what := range c.Advice {
			s.Reasons[what] = advised[advice(what)]
		}
	}
	if since := p.failingSince(); !since.IsZero() {
		s.Server.Failing = &since
	}
	return s
}

func (s *Status) explain(reasons map[string]uint64) {
	for why := range reasons {
		s.Reasons[why] = explained[reason(why)]
	}
}

// failingSince returns since when the server does not answer probes, or for a resource that is followed, zero while it
// does.
func (p *Proxy) failingSince() time.Time {
	since := p.access.Probe.UnansweredSince()
	for _, f := range p.caches.followed() {
		if failing := f.source.FailingSince(); !failing.IsZero() && (since.IsZero() || failing.Before(since)) {
			since = failing
		}
	}
	return since
}

// status returns the resources that are followed, in the order of their names.
func (c *caches) status() []ResourceStatus {
	all := []ResourceStatus{}
	for _, f := range c.followed() {
		all = append(all, f.status())
	}
	slices.SortFunc(all, func(a, b ResourceStatus) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource),
			strings.Compare(a.Version, b.Version), strings.Compare(a.Encoding, b.Encoding))
	})
	return all
}

func (f *follower) status() ResourceStatus {
	cache := f.reader.Cache()
	progress := cache.Progress()
	s := ResourceStatus{
		Group: f.resource.Group, Version: f.resource.Version, Resource: f.resource.Resource,
		Encoding: f.format.Representation.String(),
		State:    progress.State, Since: progress.Since, Objects: cache.Snapshot().Len(), Bytes: f.bytes(),
		Watchers: f.watchers.Load(), Lists: map[string]uint64{},
	}
	if confirmed := progress.LastConfirmed; !confirmed.IsZero() {
		s.Confirmed, s.Lists[FirstList] = &confirmed, 1
	}
	for kind, n := range progress.Relists {
		s.Lists[strings.ToLower(kind.String())] = n
	}
	return s
}
