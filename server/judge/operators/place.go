package operators

import (
	"fmt"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Place names a write of the operator, in all runs: the nth of its kind within a step. A generated name ends in *.
type Place struct {
	// Step counts the files of the workload from 1. Step 0 is the start of the operator.
	Step int `json:"step"`
	// Verb is create, update, patch, delete or deletecollection; or watch, for all watches of a resource.
	Verb string `json:"verb,omitempty"`
	// Resource has the group, as in deployments.apps.
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	// Nth counts the writes that are equal in all else, from 1.
	Nth int `json:"nth,omitempty"`
}

const watchVerb = "watch"

func placeOf(info *request.RequestInfo, name string) Place {
	p := Place{Verb: info.Verb, Resource: info.Resource, Subresource: info.Subresource, Namespace: info.Namespace,
		Name: name}
	switch {
	case info.APIGroup != "":
		p.Resource += "." + info.APIGroup
	case p.Resource == "namespaces":
		p.Namespace = "" // of the request it is its own name
	}
	return p
}

// String is the place in one word, as --plan reads it: 2:update:widgets.example.com/status:default/web:1.
func (p Place) String() string {
	switch p.Verb {
	case "":
		return fmt.Sprint(p.Step)
	case watchVerb:
		return fmt.Sprintf("%d:%s:%s", p.Step, p.Verb, p.Resource)
	}
	return fmt.Sprintf("%d:%s:%s:%s:%d", p.Step, p.Verb, p.kind(), p.object(), p.Nth)
}

func (p Place) kind() string {
	if p.Subresource != "" {
		return p.Resource + "/" + p.Subresource
	}
	return p.Resource
}

func (p Place) object() string { return strings.TrimPrefix(p.Namespace+"/"+p.Name, "/") }

// key is that of the object in a state.
func (p Place) key() string { return p.Resource + " " + p.object() }

// anyStep is the place in any step, and any of its number.
func (p Place) anyStep() Place {
	p.Step, p.Nth = 0, 0
	return p
}

// words are the place in a sentence.
func (p Place) words() string { return fmt.Sprintf("%s %s %s", p.Verb, p.kind(), p.object()) }
