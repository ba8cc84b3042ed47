package differential

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// selectors adds selectors that a client could use, in one of oneIn requests.
func (g *Generator) selectors(r *Request, of resource, oneIn int) {
	if g.chance(oneIn) {
		g.labels(r.Options)
	}
	if g.chance(oneIn) {
		if of.sample != nil {
			r.Options.Set("fieldSelector", g.sampleFields(of))
		} else {
			r.Options.Set("fieldSelector", g.fields(r.Path))
		}
	}
}

func (g *Generator) labels(o url.Values) {
	o.Set("labelSelector", pick(g.random,
		"color=red", "color==green", "color!=red", "color in (red,blue)", "color notin (red)", "color", "!color", "extra=",
		"extra",
		"color=red,app.kubernetes.io/part-of=differential", "index>5", "index<3", "absent=x", "absent!=x", "",
		"color in (green),!extra",
		"color in red", "=x", "a b", "color=red,,", "color=-x-", "nøn=ascii", "index>five", "x/y/z=1",
		strings.Repeat("a", 70)+"=b"))
}

// fields returns a selector by a field that the resource at path has.
func (g *Generator) fields(path string) string {
	name := func(prefix string, n int) string { return objectName(prefix, g.random.IntN(n)) }
	common := []string{"metadata.namespace=one", "metadata.namespace!=two", "metadata.namespace=absent",
		"metadata.name!=absent"}
	switch {
	case strings.Contains(path, "/pods"):
		return pick(g.random, append(common,
			"spec.nodeName="+name("node", 6), "spec.nodeName!="+name("node", 6), "spec.nodeName=", "status.phase=Running",
			"status.phase!=Running",
			"spec.restartPolicy=Never", "spec.schedulerName=default-scheduler", "spec.serviceAccountName=",
			"status.podIP=10.0.0.7",
			"status.nominatedNodeName=", "spec.hostNetwork=false", "metadata.name="+name("pod", 12), "metadata.name="+
				name("pod", 12),
			"metadata.namespace=two,metadata.name="+name("pod", 12), "spec.nodeName="+name("node", 6)+
				",status.phase=Running")...)
	case strings.Contains(path, "/configmaps"):
		return pick(g.random, append(common, "metadata.name="+name("configmap", 8), "metadata.name=absent")...)
	case strings.Contains(path, "/nodes"):
		return pick(g.random, "spec.unschedulable=true", "spec.unschedulable=false", "spec.unschedulable!=true",
			"metadata.name="+name("node", 6))
	case strings.Contains(path, "/widgets"):
		return pick(g.random, append(common,
			"spec.color=red", "spec.color!=red", "spec.size=3", "spec.ready=true", "spec.ready=false,spec.color=blue",
			"spec.size!=3", "spec.weight=1.5",
			"metadata.name="+name("widget", 10))...)
	case strings.Contains(path, "/gadgets"):
		return pick(g.random, "metadata.name="+name("gadget", 8), "metadata.name!="+name("gadget", 8), "anything.index=1")
	default:
		return pick(g.random, "metadata.name=one", "metadata.name!=one", "status.phase=Active", "status.phase!=Active",
			"name=two")
	}
}

// sampleFields returns a selector by a field of r, or by one that most resources do not have.
func (g *Generator) sampleFields(r resource) string {
	labels := append([]string{"metadata.name", "metadata.name", "metadata.namespace"}, r.sample.fields...)
	if g.chance(4) {
		labels = nil
		for _, name := range slices.Sorted(maps.Keys(fieldLabels)) {
			labels = append(labels, fieldLabels[name]...)
		}
	}
	values := []string{r.object(0), r.object(1), "older", "one", "", "0", "1", "2", "true", "ClusterIP", "LoadBalancer",
		"Opaque", "Normal", "example.com/signer",
		"worker1", "lease", "r", "Pod", "k8s.io/my-controller"}
	selector := pick(g.random, labels...) + pick(g.random, "=", "=", "==", "!=") + pick(g.random, values...)
	if g.chance(5) {
		selector += "," + pick(g.random, labels...) + pick(g.random, "=", "!=") + pick(g.random, values...)
	}
	return selector
}

// strangeFields is a selector that is refused, or selects oddly.
func (g *Generator) strangeFields() string {
	return pick(g.random, "spec.nonsense=1", "metadata.uid=x", "metadata.labels.color=red", "metadata.name", "=", "a=b=c",
		"metadata.name in (a,b)",
		"metadata.name=a,metadata.name=b", "metadata.name=pod-01,", `metadata.name=a\,b`, `metadata.name=a\`,
		"metadata.name=", "metadata.name!=",
		"metadata.name==pod-02", "METADATA.NAME=pod-01", "metadata.namespace=one,metadata.namespace=two",
		"metadata.name=widget-01,spec.size=3")
}
