package proxy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Selection is which resources may be cached. The zero value allows all but Secrets. It is immutable.
type Selection struct {
	onlyNamed    bool
	named, never map[schema.GroupResource]bool
}

var secrets = schema.GroupResource{Resource: "secrets"}

// ParseSelection returns the selection of the resources in cache without those in noCache. A name is
// resource[.group], as in kube-apiserver's flags: pods, deployments.apps. The name * in cache is all resources but
// Secrets, which must be named; an empty cache is the same. ParseSelection returns an error for any other form.
func ParseSelection(cache, noCache []string) (Selection, error) {
	s := Selection{onlyNamed: len(cache) > 0 && !slices.Contains(cache, "*")}
	var err error
	if s.named, err = parseNames(slices.DeleteFunc(slices.Clone(cache), func(name string) bool {
		return name == "*"
	})); err != nil {
		return Selection{}, err
	}
	if s.never, err = parseNames(noCache); err != nil {
		return Selection{}, err
	}
	for name := range s.never {
		if s.named[name] {
			return Selection{}, fmt.Errorf("%s is to be cached and not to be cached: name it once", name)
		}
	}
	return s, nil
}

func parseNames(names []string) (map[schema.GroupResource]bool, error) {
	parsed := map[schema.GroupResource]bool{}
	for _, name := range names {
		of := schema.ParseGroupResource(name)
		if of.Resource == "" || strings.ContainsAny(name, "*/ ") || name != strings.ToLower(name) ||
			strings.HasSuffix(name, ".") {
			return nil, fmt.Errorf(
				"%q is not the name of a resource: give its plural and its group, as in pods or deployments.apps", name)
		}
		parsed[of] = true
	}
	return parsed, nil
}

// Allows reports whether a resource may be cached.
func (s Selection) Allows(of schema.GroupResource) bool {
	switch {
	case s.never[of]:
		return false
	case s.named[of]:
		return true
	}
	return !s.onlyNamed && of != secrets
}

// Named returns the resources that the selection names to be cached, in the order of their names, and whether it
// allows no others.
func (s Selection) Named() (named []schema.GroupResource, only bool) {
	return slices.SortedFunc(maps.Keys(s.named), compareResources), s.onlyNamed
}

func compareResources(a, b schema.GroupResource) int {
	if a.Group != b.Group {
		return strings.Compare(a.Group, b.Group)
	}
	return strings.Compare(a.Resource, b.Resource)
}
