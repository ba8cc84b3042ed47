package rights

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// request is a random request to both servers.
type request interface {
	fmt.Stringer
	send(context.Context, *side) answer
}

// answer is what must be equal.
type answer struct{ kind, text string }

func (w *world) request() request {
	switch n := w.random.IntN(20); {
	case n == 0:
		return list{w.identity(), pick(w.random, homes)}
	case n < 8:
		return w.grant()
	default:
		return w.question()
	}
}

func (w *world) identity() identity {
	r := w.random
	who := identity{name: pick(r, names)}
	for _, group := range groups {
		if r.IntN(4) == 0 {
			who.groups = append(who.groups, group)
		}
	}
	if r.IntN(40) == 0 {
		who.groups = append(who.groups, "system:masters")
	}
	return who
}

// question asks what a user may do.
type question struct {
	spec  authorizationv1.SubjectAccessReviewSpec
	local bool
}

func (w *world) question() question {
	r := w.random
	who := w.identity()
	q := question{spec: authorizationv1.SubjectAccessReviewSpec{User: who.name, Groups: append(who.groups,
		"system:authenticated")}}
	if r.IntN(6) == 0 {
		q.spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: pick(r, []string{"get", "post", "*"}),
			Path: pick(r, append(paths, "/log", "/logsx", "*", ""))}
		return q
	}
	resource, subresource, _ := strings.Cut(pick(r, append(resources, "*")), "/")
	q.spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: pick(r, append(homes, "", "missing")), Verb: pick(r, append(verbs, "*")),
		Group:    pick(r, append(apiGroups, "*")),
		Resource: resource, Subresource: subresource, Name: pick(r, append(objects, "", "")),
	}
	q.local = r.IntN(10) == 0 && q.spec.ResourceAttributes.Namespace != ""
	return q
}

func (q question) String() string { return marshal(q.spec) }

func (q question) send(ctx context.Context, s *side) answer {
	var status authorizationv1.SubjectAccessReviewStatus
	if q.local {
		home := q.spec.ResourceAttributes.Namespace
		review, err := s.admin.AuthorizationV1().LocalSubjectAccessReviews(home).Create(ctx,
			&authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: home}, Spec: q.spec},
			metav1.CreateOptions{})
		if err != nil {
			return failed("question", err)
		}
		status = review.Status
	} else {
		review, err := s.admin.AuthorizationV1().SubjectAccessReviews().Create(ctx,
			&authorizationv1.SubjectAccessReview{Spec: q.spec}, metav1.CreateOptions{})
		if err != nil {
			return failed("question", err)
		}
		status = review.Status
	}
	// Which of several bindings is named, and the order of missing roles, is left to chance.
	reason, _, _ := strings.Cut(status.Reason, "\"")
	if !status.Allowed && strings.HasPrefix(status.Reason, "RBAC: ") {
		reason = "roles are missing"
	} else if status.Allowed && reason != "" {
		reason = "RBAC: allowed by"
	}
	text := fmt.Sprintf("denied=%v, %s, %s", status.Denied, reason, status.EvaluationError)
	if status.Allowed {
		return answer{"allowed", text}
	}
	return answer{"denied", text}
}

// list asks for all rules of a user.
type list struct {
	who  identity
	home string
}

func (l list) String() string { return fmt.Sprintf("rules of %s in %s", l.who.key(), l.home) }

func (l list) send(ctx context.Context, s *side) answer {
	client, err := s.as(l.who)
	if err != nil {
		return failed("rules", err)
	}
	review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx,
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: l.home}},
		metav1.CreateOptions{})
	if err != nil {
		return failed("rules", err)
	}
	var rules []string
	for _, rule := range review.Status.ResourceRules {
		if !slices.Contains(rule.Resources, "clustertrustbundles") { // a default since v1.37
			rules = append(rules, marshal(rule))
		}
	}
	for _, rule := range review.Status.NonResourceRules {
		rules = append(rules, marshal(rule))
	}
	slices.Sort(rules)
	return answer{"rules", fmt.Sprintf("incomplete=%v error=%v %s", review.Status.Incomplete,
		review.Status.EvaluationError != "", strings.Join(rules, "\n"))}
}

// grant writes a role or a binding as a user, without an effect.
type grant struct {
	who        identity
	home, name string
	update     bool
	rules      []rbacv1.PolicyRule
	aggregates bool
	ref        *rbacv1.RoleRef // of a binding
	subjects   []rbacv1.Subject
}

func (w *world) grant() grant {
	r := w.random
	g := grant{who: w.identity(), home: pick(r, append(slices.Clone(homes), "")), name: "granted"}
	if r.IntN(4) > 0 && !slices.Contains(g.who.groups, "authors") {
		g.who.groups = append(g.who.groups, "authors")
	}
	if r.IntN(2) == 0 {
		ref := w.ref(g.home)
		if r.IntN(10) == 0 {
			ref.Kind = "Role"
		}
		if g.home == "" {
			ref.Kind = "ClusterRole"
		}
		g.ref, g.subjects = &ref, w.subjects(g.home)
		return g
	}
	g.rules = w.rules(g.home != "")
	if r.IntN(3) == 0 { // what the user may have already
		g.rules = []rbacv1.PolicyRule{{Verbs: some(r, "create", "get", "patch"), APIGroups: []string{rbacv1.GroupName},
			Resources: some(r, "roles", "clusterroles")}}
	}
	g.aggregates = g.home == "" && r.IntN(4) == 0
	if r.IntN(2) == 0 {
		g.update = true
		g.home, g.name = split(pick(r, w.roles))
		g.aggregates = g.aggregates && g.home == ""
		if g.home != "" {
			g.rules = slices.DeleteFunc(g.rules, func(rule rbacv1.PolicyRule) bool { return len(rule.NonResourceURLs) > 0 })
		}
	}
	return g
}

func (g grant) String() string {
	return fmt.Sprintf("%s grants in %q %q (update %v, aggregates %v): %s%s", g.who.key(), g.home, g.name, g.update,
		g.aggregates, marshal(g.rules), marshal(g.ref))
}

func (g grant) send(ctx context.Context, s *side) answer {
	client, err := s.as(g.who)
	if err == nil {
		err = g.write(ctx, client)
	}
	if err != nil {
		return failed("refused", err)
	}
	return answer{kind: "granted"}
}

func (g grant) write(ctx context.Context, c kubernetes.Interface) (err error) {
	of, rbac, dryRun := metav1.ObjectMeta{Name: g.name}, c.RbacV1(), []string{metav1.DryRunAll}
	create, update := metav1.CreateOptions{DryRun: dryRun}, metav1.PatchOptions{DryRun: dryRun}
	change := map[string]any{"rules": g.rules}
	cluster := &rbacv1.ClusterRole{ObjectMeta: of, Rules: g.rules}
	if g.aggregates {
		cluster.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
			{MatchLabels: map[string]string{"a": "b"}}}}
		change["aggregationRule"] = cluster.AggregationRule
	}
	switch {
	case g.ref != nil && g.home == "":
		_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: of, RoleRef: *g.ref,
			Subjects: g.subjects}, create)
	case g.ref != nil:
		_, err = rbac.RoleBindings(g.home).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: of, RoleRef: *g.ref,
			Subjects: g.subjects}, create)
	case g.update && g.home == "":
		_, err = rbac.ClusterRoles().Patch(ctx, g.name, types.MergePatchType, []byte(marshal(change)), update)
	case g.update:
		_, err = rbac.Roles(g.home).Patch(ctx, g.name, types.MergePatchType, []byte(marshal(change)), update)
	case g.home == "":
		_, err = rbac.ClusterRoles().Create(ctx, cluster, create)
	default:
		_, err = rbac.Roles(g.home).Create(ctx, &rbacv1.Role{ObjectMeta: of, Rules: g.rules}, create)
	}
	return err
}

// failed is the answer of an error. The order of missing roles in it is left to chance.
func failed(kind string, err error) answer {
	text, _, _ := strings.Cut(err.Error(), "; resolution errors")
	text, _, _ = strings.Cut(text, ": RBAC: ")
	return answer{kind, fmt.Sprintf("%s: %s", apierrors.ReasonForError(err), text)}
}

func marshal(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // a type of the API
	}
	return string(text)
}
