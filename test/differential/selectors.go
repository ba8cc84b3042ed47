package differential

import (
	"net/url"
	"strings"
)

// selectors adds selectors that a client could use, in one of oneIn requests.
func (g *Generator) selectors(r *Request, oneIn int) {
	if g.chance(oneIn) {
		g.labels(r.Options)
	}
	if g.chance(oneIn) {
		r.Options.Set("fieldSelector", g.fields(r.Path))
	}
}

func (g *Generator) labels(o url.Values) {
	o.Set("labelSelector", pick(g.random,
		"color=red", "color==green", "color!=red", "color in (red,blue)", "color notin (red)", "color", "!color", "extra=", "extra",
		"color=red,app.kubernetes.io/part-of=differential", "index>5", "index<3", "absent=x", "absent!=x", "", "color in (green),!extra",
		"color in red", "=x", "a b", "color=red,,", "color=-x-", "nøn=ascii", "index>five", "x/y/z=1", strings.Repeat("a", 70)+"=b"))
}

// fields returns a selector by a field that the resource at path has.
func (g *Generator) fields(path string) string {
	name := func(prefix string, n int) string { return objectName(prefix, g.random.IntN(n)) }
	common := []string{"metadata.namespace=one", "metadata.namespace!=two", "metadata.namespace=absent", "metadata.name!=absent"}
	switch {
	case strings.Contains(path, "/pods"):
		return pick(g.random, append(common,
			"spec.nodeName="+name("node", 6), "spec.nodeName!="+name("node", 6), "spec.nodeName=", "status.phase=Running", "status.phase!=Running",
			"spec.restartPolicy=Never", "spec.schedulerName=default-scheduler", "spec.serviceAccountName=", "status.podIP=10.0.0.7",
			"status.nominatedNodeName=", "spec.hostNetwork=false", "metadata.name="+name("pod", 12), "metadata.name="+name("pod", 12),
			"metadata.namespace=two,metadata.name="+name("pod", 12), "spec.nodeName="+name("node", 6)+",status.phase=Running")...)
	case strings.Contains(path, "/configmaps"):
		return pick(g.random, append(common, "metadata.name="+name("configmap", 8), "metadata.name=absent")...)
	case strings.Contains(path, "/nodes"):
		return pick(g.random, "spec.unschedulable=true", "spec.unschedulable=false", "spec.unschedulable!=true", "metadata.name="+name("node", 6))
	case strings.Contains(path, "/widgets"):
		return pick(g.random, append(common,
			"spec.color=red", "spec.color!=red", "spec.size=3", "spec.ready=true", "spec.ready=false,spec.color=blue", "spec.size!=3", "spec.weight=1.5",
			"metadata.name="+name("widget", 10))...)
	case strings.Contains(path, "/gadgets"):
		return pick(g.random, "metadata.name="+name("gadget", 8), "metadata.name!="+name("gadget", 8), "anything.index=1")
	default:
		return pick(g.random, "metadata.name=one", "metadata.name!=one", "status.phase=Active", "status.phase!=Active", "name=two")
	}
}

// strangeFields is a selector that is refused, or selects oddly.
func (g *Generator) strangeFields() string {
	return pick(g.random, "spec.nonsense=1", "metadata.uid=x", "metadata.labels.color=red", "metadata.name", "=", "a=b=c", "metadata.name in (a,b)",
		"metadata.name=a,metadata.name=b", "metadata.name=pod-01,", `metadata.name=a\,b`, `metadata.name=a\`, "metadata.name=", "metadata.name!=",
		"metadata.name==pod-02", "METADATA.NAME=pod-01", "metadata.namespace=one,metadata.namespace=two", "metadata.name=widget-01,spec.size=3")
}
