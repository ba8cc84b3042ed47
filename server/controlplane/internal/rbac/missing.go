package rbac

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// describe returns rules, each of at most one verb, one resource, one name and one path, in kube-apiserver's words: a
// line for each resource with its verbs.
func describe(rules []rbacv1.PolicyRule) string {
	verbs := map[string][]string{} // by the rest of the rule
	for _, rule := range rules {
		key := describeWithoutVerbs(rule)
		if len(rule.NonResourceURLs) > 0 {
			verbs[key+fmt.Sprintf(", Verbs:%q", rule.Verbs)] = nil // a line for each verb of a path
			continue
		}
		verbs[key] = append(verbs[key], rule.Verbs...)
	}
	lines := make([]string, 0, len(verbs))
	for key, of := range verbs {
		if of != nil {
			key += fmt.Sprintf(", Verbs:%q", of)
		}
		lines = append(lines, "{"+key+"}")
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func describeWithoutVerbs(rule rbacv1.PolicyRule) string {
	var parts []string
	for _, part := range []struct {
		name   string
		values []string
	}{
		{"APIGroups", rule.APIGroups}, {"Resources", rule.Resources}, {"NonResourceURLs", rule.NonResourceURLs},
		{"ResourceNames", rule.ResourceNames},
	} {
		if len(part.values) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", part.name, part.values))
		}
	}
	return strings.Join(parts, ", ")
}
