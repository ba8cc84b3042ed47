package differential

import (
	"fmt"
	"math/rand/v2"
	"net/url"
)

// Generator draws requests: three quarters that a client could mean, and one
// quarter in which every option is drawn by itself.
type Generator struct {
	world          *World
	random         *rand.Rand
	continueTokens []token
}

// Draw draws n requests for the world as it is now.
func (g *Generator) Draw(n int) []Request {
	all := make([]Request, n)
	for i := range all {
		all[i] = g.request()
	}
	return all
}

func (g *Generator) chance(oneIn int) bool { return g.random.IntN(oneIn) == 0 }

func (g *Generator) request() Request {
	r := Request{Options: url.Values{}, Agent: pick(g.random, "", "", "", "keepwatch-test/1", "curl/8.5.0", "Mozilla/5.0")}
	resource := g.resource()
	switch n := g.random.IntN(100); {
	case len(g.world.kinds) > 0 && g.chance(12):
		g.dryRun(&r, pick(g.random, g.world.written...))
		r.HTTP1, r.Accept = g.chance(3), "application/json"
		return r
	case n < 12:
		g.get(&r, resource)
	case n < 60:
		r.Path = g.collection(resource)
		if g.chance(4) {
			g.wildList(r.Options)
		} else {
			g.list(&r, resource)
		}
	case n < 97:
		g.watch(&r, resource)
	default:
		g.lost(&r, resource)
	}
	if g.chance(12) {
		r.Options.Set(pick(g.random, "pretty", "pretty", "unknown", "exact", "includeUninitialized", "timeout", "limits"),
			pick(g.random, "true", "true", "false", "1", "", "30s"))
	}
	if len(g.world.kinds) > 0 && g.chance(10) {
		g.as(&r)
	}
	r.HTTP1 = g.chance(3)
	r.Accept, r.Encoding = g.accept(r.Stream), pick(g.random, "", "", "", "gzip", "gzip, deflate, br", "identity", "br")
	return r
}

// resource draws a resource. The kinds of samples are many, and change little.
func (g *Generator) resource() resource {
	if len(g.world.kinds) > 0 && g.chance(2) {
		return pick(g.random, g.world.kinds...)
	}
	return pick(g.random, asked...)
}

// collection is a path to list or watch.
func (g *Generator) collection(r resource) string {
	if !r.namespaced || g.chance(2) {
		return r.collection("")
	}
	return r.collection(g.namespace())
}

func (g *Generator) namespace() string {
	if g.chance(10) {
		return pick(g.random, "three", "absent", "on")
	}
	return pick(g.random, namespaces[:3]...)
}

// name returns the name of an object, or one that does not exist.
func (g *Generator) name(r resource) string {
	if r.names == 0 {
		return pick(g.random, append([]string{"default", "absent"}, namespaces...)...)
	}
	if g.chance(10) {
		return pick(g.random, "absent", "UPPER", "a.b", r.object(99))
	}
	return r.object(g.random.IntN(r.names))
}

func (g *Generator) get(r *Request, of resource) {
	home := ""
	if of.namespaced {
		home = g.namespace()
	}
	r.Path = of.collection(home) + "/" + g.name(of)
	if g.chance(12) {
		r.Path += pick(g.random, "/status", "/scale", "/nonsense")
	}
	g.revision(r.Options, 2)
	if g.chance(15) {
		r.Options.Set(pick(g.random, "watch", "limit", "fieldSelector", "resourceVersionMatch"), pick(g.random, "true", "1",
			"Exact"))
	}
	g.include(r.Options)
}

// lost requests something that does not exist.
func (g *Generator) lost(r *Request, of resource) {
	r.Path = pick(g.random, "/api/v1/nonsense", "/api/v1/namespaces/one/nonsense/x", of.root()+"/nonsense",
		"/apis/nonsense.example.com/v1/widgets",
		"/apis/"+group+"/v2/widgets", "/api/v1/namespaces/one/nodes", "/api/v2/pods", "/api/v1/Pods", "/apis/"+group+
			"/v1/namespaces/one/gadgets",
		"/apis/"+group+"/v1/gadgets/gadget-01/nonsense", "/api/v1/pods/pod-01", "/nonsense", "/api/v1/namespaces//pods",
		of.collection("")+"/")
}

func (g *Generator) include(o url.Values) {
	if g.chance(6) {
		o.Set("includeObject", pick(g.random, "None", "Metadata", "Object", "", "nonsense"))
	}
}

// list draws options that a client could use: each row of the table of resourceVersion,
// resourceVersionMatch and paging.
func (g *Generator) list(r *Request, of resource) {
	o := r.Options
	if g.chance(5) && len(g.continueTokens) > 0 {
		t := pick(g.random, g.continueTokens...)
		r.Path = t.path
		for name, values := range t.selector {
			o[name] = values
		}
		o.Set("continue", t.value)
		if !g.chance(4) {
			o.Set("limit", g.limit())
		}
		if g.chance(8) {
			o.Set("resourceVersion", "0")
		}
		return
	}
	switch g.random.IntN(6) {
	case 0, 1: // consistent
	case 2:
		o.Set("resourceVersion", "0")
	case 3:
		o.Set("resourceVersion", fmt.Sprint(g.past()))
	case 4:
		o.Set("resourceVersion", fmt.Sprint(g.past()))
		o.Set("resourceVersionMatch", "NotOlderThan")
	case 5:
		o.Set("resourceVersion", fmt.Sprint(g.past()))
		o.Set("resourceVersionMatch", "Exact")
	}
	if g.chance(2) {
		o.Set("limit", g.limit())
	}
	g.selectors(r, of, 3)
	if g.chance(20) {
		o.Set("timeoutSeconds", pick(g.random, "1", "30", "x"))
	}
	g.include(o)
}

// wildList draws each option independently of the others.
func (g *Generator) wildList(o url.Values) {
	g.revision(o, 2)
	g.match(o, 2)
	if g.chance(2) {
		o.Set("limit", pick(g.random, "1", "2", "7", "500", "0", "-1", "x", "9223372036854775807", "9223372036854775808", ""))
	}
	if g.chance(4) {
		o.Set("continue", g.forged())
	}
	if g.chance(6) && len(g.continueTokens) > 0 {
		o.Set("continue", pick(g.random, g.continueTokens...).value)
	}
	if g.chance(10) {
		o.Set("sendInitialEvents", pick(g.random, "true", "false", "x", ""))
	}
	if g.chance(10) {
		o.Set("watch", pick(g.random, "false", "0"))
	}
	if g.chance(3) {
		g.labels(o)
	}
	if g.chance(3) {
		o.Set("fieldSelector", g.strangeFields())
	}
	g.include(o)
}

func (g *Generator) limit() string { return pick(g.random, "1", "2", "3", "5", "5", "10", "500") }

// past returns an earlier revision, mostly one whose history both servers have.
func (g *Generator) past() int64 {
	known := g.world.between(max(g.world.origin, g.world.compacted), g.world.revision+1)
	lost := g.world.between(0, max(g.world.origin, g.world.compacted))
	switch n := g.random.IntN(10); {
	case n < 1:
		return int64(1 + g.random.IntN(20)) // before theirs was ready
	case n < 3 && len(lost) > 0:
		return pick(g.random, lost...)
	case n < 5 || len(known) == 0: // nothing was written since the compaction
		return g.world.revision
	}
	return pick(g.random, known...) - int64(g.random.IntN(2))
}

// revision is any resourceVersion, in one of so many requests none.
func (g *Generator) revision(o url.Values, none int) {
	if g.chance(none) {
		return
	}
	switch n := g.random.IntN(20); {
	case n < 5:
		o.Set("resourceVersion", "0")
	case n < 15:
		o.Set("resourceVersion", fmt.Sprint(g.past()))
	case n < 16:
		o.Set("resourceVersion", fmt.Sprint(g.world.revision+pick(g.random, int64(1), 2, 1_000_000)))
	case n < 17:
		o.Set("resourceVersion", "1")
	case n < 19:
		o.Set("resourceVersion", pick(g.random, "x", "-1", "1.5", "18446744073709551616", "9223372036854775808", " 1", "0x1",
			"00"))
	default:
		o["resourceVersion"] = []string{"0", fmt.Sprint(g.past())}
	}
}

func (g *Generator) match(o url.Values, none int) {
	if !g.chance(none) {
		o.Set("resourceVersionMatch", pick(g.random, "Exact", "Exact", "NotOlderThan", "NotOlderThan", "notolderthan", "Any",
			""))
	}
}
