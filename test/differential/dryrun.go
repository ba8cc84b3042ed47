package differential

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// dryRun makes a request a write that is not stored. Both servers read the objects that it is about.
func (g *Generator) dryRun(r *Request, of resource) {
	home := pick(g.random, of.homes()...)
	i := g.random.IntN(of.names)
	object := of.make(home, i)
	one := of.collection(home) + "/" + of.object(i)
	o := r.Options
	o.Set("dryRun", "All")
	if g.chance(20) {
		o.Set("dryRun", pick(g.random, "Some", "", "all"))
		o.Add("dryRun", "All") // another value must not store anything
	}
	switch g.random.IntN(6) {
	case 0:
		r.Method, r.Path = http.MethodPost, of.collection(home)
		if of.name == "services" { // the server draws its address
			r.Method, r.Path = http.MethodPut, one
		}
	case 1:
		r.Method, r.Path = http.MethodPut, one
		if g.chance(3) {
			object["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(g.past())
		}
	case 2:
		r.Method, r.Path, r.ContentType = http.MethodPatch, one, "application/merge-patch+json"
		change := of.change(g.random)
		r.Body = change.body
		if change.subresource != "" {
			r.Path += "/" + change.subresource
		}
	case 3:
		r.Method, r.Path, r.ContentType = http.MethodPatch, one, "application/apply-patch+yaml"
		if !g.chance(10) {
			o.Set("fieldManager", "differential")
		}
		if g.chance(2) {
			o.Set("force", "true")
		}
	case 4:
		r.Method, r.Path = http.MethodDelete, one
		r.Body = pick(g.random, "", deleteOptions(""), deleteOptions(`,"propagationPolicy":"Foreground"`),
			deleteOptions(`,"preconditions":{"resourceVersion":"1"}`),
			deleteOptions(`,"preconditions":{"uid":"x"}`), deleteOptions(`,"gracePeriodSeconds":0`))
	case 5:
		r.Method, r.Path = http.MethodDelete, of.collection(home)
		r.Body = pick(g.random, "", deleteOptions(""))
		g.selectors(r, of, 2)
	}
	if r.Body == "" && r.Method != http.MethodDelete {
		text, _ := json.Marshal(object)
		r.Body = string(text)
	}
	if r.ContentType == "" {
		r.ContentType = "application/json"
	}
	if g.chance(10) {
		o.Set("fieldValidation", pick(g.random, "Strict", "Ignore", "Warn", "nonsense"))
	}
}

// deleteOptions is the body of a deletion. With a body, servers ignore the query: it must say again that
// nothing is to be stored.
func deleteOptions(more string) string {
	return `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]` + more + `}`
}
