package differential

import (
	"fmt"
	"net/url"
	"strings"
)

// watch is a watch that ends by itself.
func (g *Generator) watch(r *Request, of resource) {
	r.Path, r.Stream = g.collection(of), true
	o := r.Options
	if of.group == "" && g.chance(12) { // the older spelling
		r.Path = strings.Replace(r.Path, "/api/v1/", "/api/v1/watch/", 1)
		if of.names > 0 && (!of.namespaced || strings.Contains(r.Path, "/namespaces/")) && g.chance(2) {
			r.Path += "/" + g.name(of)
		}
	} else {
		o.Set("watch", pick(g.random, "true", "true", "true", "1", "t", "yes", ""))
	}
	if g.chance(4) {
		g.wildWatch(o)
	} else {
		g.meantWatch(o)
		g.selectors(r, of, 3)
	}
	if o.Get("timeoutSeconds") == "" {
		o.Set("timeoutSeconds", pick(g.random, "1", "1", "1", "2"))
	}
	g.include(o)
}

func (g *Generator) meantWatch(o url.Values) {
	switch g.random.IntN(10) {
	case 0: // initial events, and then the changes
	case 1:
		o.Set("resourceVersion", "0")
	case 2, 3, 4, 5, 6:
		o.Set("resourceVersion", fmt.Sprint(g.past()))
	case 7, 8:
		o.Set("sendInitialEvents", "true")
		o.Set("resourceVersionMatch", "NotOlderThan")
		o.Set("allowWatchBookmarks", "true")
		if g.chance(2) {
			o.Set("resourceVersion", pick(g.random, "0", fmt.Sprint(g.past())))
		}
	case 9:
		o.Set("sendInitialEvents", "false")
		o.Set("resourceVersionMatch", "NotOlderThan")
		if g.chance(2) {
			o.Set("resourceVersion", pick(g.random, "0", fmt.Sprint(g.past())))
		}
	}
	if g.chance(2) {
		o.Set("allowWatchBookmarks", "true")
	}
}

func (g *Generator) wildWatch(o url.Values) {
	g.revision(o, 3)
	g.match(o, 2)
	if !g.chance(3) {
		o.Set("sendInitialEvents", pick(g.random, "true", "true", "false", "x"))
	}
	if g.chance(2) {
		o.Set("allowWatchBookmarks", pick(g.random, "true", "false", "x"))
	}
	if g.chance(8) {
		o.Set("limit", pick(g.random, "1", "x"))
	}
	if g.chance(8) {
		o.Set("continue", g.forged())
	}
	if g.chance(8) {
		o.Set("timeoutSeconds", "x")
	}
	if g.chance(3) {
		g.labels(o)
	}
	if g.chance(3) {
		o.Set("fieldSelector", g.strangeFields())
	}
}
