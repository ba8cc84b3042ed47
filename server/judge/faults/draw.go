package faults

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// maxCounters bounds the counters of a plan, and those of a transcript. Clients and resources beyond it share one for
// each rule and kind of request.
const maxCounters = 1 << 16

// draws decides which request meets which fault of a plan. It is safe for concurrent use.
type draws struct {
	seed  uint64
	rules []compiledRule

	mu     sync.Mutex
	counts map[drawKey]int
}

// drawKey is a kind of requests of one client.
type drawKey struct {
	rule                        int
	client, resource, namespace string
	class                       Class
}

func newDraws(seed uint64, rules []compiledRule) *draws {
	return &draws{seed: seed, rules: rules, counts: make(map[drawKey]int)}
}

// fault returns the fault of the first rule that selects a request, and whose probability hits. It depends
// on the seed, the rule, the client's kind of request and its number, and not on how several of them interleave.
func (d *draws) fault(req Request, now time.Duration) Fault {
	for i := range d.rules {
		rule := &d.rules[i]
		if !rule.selects(&req, now) {
			continue
		}
		key := drawKey{i, req.Client, req.Resource, req.Namespace, req.Class}
		n := d.count(key)
		if !rule.selectsNumber(n) {
			continue
		}
		if r := d.random(key, n); r.Float64() < rule.probability {
			return rule.draw(r)
		}
	}
	return None
}

// needHistory reports whether a rule has a state of the past.
func (d *draws) needHistory() bool {
	return slices.ContainsFunc(d.rules, func(r compiledRule) bool {
		return r.fault.kind == stale ||
			r.fault.kind == rewind
	})
}

func (d *draws) count(key drawKey) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.counts[key]; !known && len(d.counts) >= maxCounters {
		key = drawKey{rule: key.rule, class: key.class}
	}
	d.counts[key]++
	return d.counts[key]
}

func (d *draws) random(key drawKey, n int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%q/%q/%q/%s/%d", key.rule, key.client, key.resource, key.namespace, key.class, n)
	return rand.New(rand.NewPCG(d.seed, h.Sum64()))
}

// draw returns the rule's fault, at a random position if the rule says so.
func (c *compiledRule) draw(r *rand.Rand) Fault {
	f := c.fault
	if !c.random {
		return f
	}
	f.after.bytes = r.Int64N(f.after.bytes + 1)
	f.after.events = r.IntN(f.after.events + 1)
	f.after.idle = time.Duration(r.Int64N(int64(f.after.idle) + 1))
	f.after.elapsed = time.Duration(r.Int64N(int64(f.after.elapsed) + 1))
	return f
}
