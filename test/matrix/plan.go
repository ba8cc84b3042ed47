package matrix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/server/judge/faults"
)

// configMaps is the resource that clients follow, as the proxy names it.
const configMaps = "configmaps"

// Plan is what goes wrong in a cell while its writer writes: by commands to the proxy, or by one of the plans
// that package faults ships.
type Plan struct {
	Name string
	// What describes the plan in a sentence.
	What string
	// HidesHistory is true if a client can learn of some changes by a list only: then objects may change
	// more than once, or exist, unseen.
	HidesHistory bool

	fate  faults.Fate // of the client's requests, until the plan is over
	named faults.Plan // from the client's first request until the plan is over
	story func(*cell) error
}

// Plans are all plans: those of this package, then the named ones.
var Plans = append(commanded, named()...)

// commanded are the plans that command the proxy.
var commanded = []Plan{
	{
		Name: "none", What: "Nothing goes wrong.",
		story: func(c *cell) error { return c.write(200) },
	},
	{
		Name: "cuts",
		What: "After every 10 to 25 writes the watch ends cleanly, is truncated, is torn within an event, or its connection is reset.",
		story: func(c *cell) error {
			cuts := []faults.Fault{faults.End, faults.Cut, faults.Tear, faults.Reset}
			return c.writeDisturbed(240, 10, 25, cuts)
		},
	},
	{
		Name: "outage", What: "Connections are refused for 20 s. The server keeps the history.",
		story: func(c *cell) error {
			return c.whileRefused(func() error {
				if err := c.write(100); err != nil {
					return err
				}
				return c.sleep(20 * time.Second)
			}, 40)
		},
	},
	{
		Name:         "compaction",
		What:         "Connections are refused during 160 writes. Then the history of these has expired: a watch from before gets an ERROR event with 410 Expired.",
		HidesHistory: true,
		story: func(c *cell) error {
			return c.whileRefused(func() error {
				if err := c.write(160); err != nil {
					return err
				}
				return c.expire()
			}, 40)
		},
	},
	{
		Name: "expired", What: "Three times the watch gets an ERROR event with 410 Expired.", HidesHistory: true,
		story: func(c *cell) error { return c.each(3, 40, faults.Event(faults.Expired)) },
	},
	{
		Name: "gone", What: "Three times the watch ends, and the next one is answered with 410 Gone.", HidesHistory: true,
		story: func(c *cell) error {
			for range 3 {
				c.proxy.Next(faults.Watch, configMaps, faults.Answer(faults.Gone))
				if err := c.each(1, 40, faults.End); err != nil {
					return err
				}
			}
			return nil
		},
	},
	{
		Name: "overload",
		What: "During 800 writes the watch ends after every 40, and 7 of 10 requests are answered with 429 and Retry-After: 1.",
		fate: share(0.7, faults.Answer(faults.TooManyRequests)),
		story: func(c *cell) error {
			return c.writeDisturbed(800, 40, 40, []faults.Fault{faults.End})
		},
	},
	{
		Name: "errors",
		What: "During 800 writes the watch ends, or gets an ERROR event with 500, 503 or 504, after every 40. Half of the requests are answered with these.",
		fate: share(0.5, faults.Answer(faults.InternalError), faults.Answer(faults.Unavailable),
			faults.Answer(faults.Timeout)),
		story: func(c *cell) error {
			return c.writeDisturbed(800, 40, 40, []faults.Fault{
				faults.End, faults.Event(faults.InternalError), faults.Event(faults.Unavailable), faults.Event(faults.Timeout),
			})
		},
	},
	{
		Name: "half-open", What: "The watch's connection sends nothing more, and is not closed.",
		story: func(c *cell) error {
			if err := c.write(20); err != nil {
				return err
			}
			c.disturb(faults.HalfOpen)
			return c.write(40)
		},
	},
	{
		Name: "garbled", What: "Three times the watch has an event that cannot be decoded.",
		story: func(c *cell) error { return c.each(3, 40, faults.Garbage) },
	},
	{
		Name: "repeated", What: "Three times the watch repeats its last event.",
		story: func(c *cell) error { return c.each(3, 40, faults.Repeat) },
	},
}

// named are the plans of package faults. One whose name a plan of commands has begins with "plan-".
func named() (all []Plan) {
	for _, p := range faults.Plans() {
		name := p.Name
		if slices.ContainsFunc(commanded, func(c Plan) bool { return c.Name == name }) {
			name = "plan-" + name
		}
		all = append(all, Plan{
			Name: name, What: p.Description, HidesHistory: slices.ContainsFunc(p.Rules, hidesHistory),
			named: p,
			story: func(c *cell) error {
				for range namedPhases {
					if err := c.write(namedWrites); err != nil {
						return err
					}
					if err := c.sleep(namedIdle); err != nil {
						return err
					}
				}
				c.proxy.Calm()
				return nil
			},
		})
	}
	return all
}

// A named plan lasts for a minute. Twice nothing is written for longer than any of them waits.
const (
	namedPhases = 2
	namedWrites = 300
	namedIdle   = 20 * time.Second
)

// hidesHistory reports whether a rule makes clients list after changes that they have not seen.
func hidesHistory(r faults.Rule) bool {
	return r.Status == string(metav1.StatusReasonExpired) || r.Fault == "rewind" || r.Fault == "stale" ||
		r.Fault == "from-scratch"
}

// FindPlan returns the plan with a name.
func FindPlan(name string) (Plan, error) {
	for _, p := range Plans {
		if p.Name == name {
			return p, nil
		}
	}
	return Plan{}, fmt.Errorf("there is no plan %q", name)
}

// share has a share of the lists and watches meet one of the faults.
func share(share float64, choice ...faults.Fault) faults.Fate {
	return func(r *rand.Rand, request faults.Request) faults.Fault {
		if request.Resource != configMaps || r.Float64() >= share {
			return faults.None
		}
		return choice[r.IntN(len(choice))]
	}
}

// expire makes the history so far expire. kube-apiserver's watch cache has it long after a compaction of
// etcd, until the server restarts.
func (c *cell) expire() error {
	newest, err := c.server.newest(c.ctx)
	c.expired.Store(uint64(newest))
	return err
}

// isExpired reports whether a request is a watch from a revision whose history has expired.
func (c *cell) isExpired(request faults.Request) bool {
	revision, err := strconv.ParseUint(request.Revision, 10, 64)
	return err == nil && revision > 0 && revision < c.expired.Load() &&
		request.Class == faults.Watch && request.Resource == configMaps
}

// each applies a fault to the open watch a number of times, and writes behind each.
func (c *cell) each(times, writes int, fault faults.Fault) error {
	for range times {
		if err := c.write(writes); err != nil {
			return err
		}
		c.disturb(fault)
		if err := c.sleep(2 * time.Second); err != nil {
			return err
		}
	}
	return c.write(writes)
}

// disturb applies a fault to the open watch, which may be a streaming list.
func (c *cell) disturb(fault faults.Fault) { c.proxy.Now(faults.Any, configMaps, fault) }

// whileRefused runs what happens while the client's connections are refused, and writes behind it.
func (c *cell) whileRefused(happens func() error, writes int) error {
	if err := c.proxy.Down(); err != nil {
		return err
	}
	if err := happens(); err != nil {
		return err
	}
	if err := c.proxy.Up(); err != nil {
		return err
	}
	return c.write(writes)
}

// writeDisturbed does a number of writes, and applies one of the faults to the watch after each least to most of
// them.
func (c *cell) writeDisturbed(writes, least, most int, choice []faults.Fault) error {
	for writes > 0 {
		n := min(writes, least+c.random.IntN(most-least+1))
		if err := c.write(n); err != nil {
			return err
		}
		writes -= n
		c.disturb(choice[c.random.IntN(len(choice))])
	}
	return nil
}
