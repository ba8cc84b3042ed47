package rbac

import (
	"cmp"
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
)

// Policy is the roles and bindings of a server. Its methods are safe for concurrent use.
type Policy struct {
	informers informers.SharedInformerFactory
	rbac      rbacinformers.Interface
	read      chan struct{} // closed when all that existed when Follow was called has been read, or cannot be
}

// NewPolicy returns the roles and bindings that a client reads. It is empty before Follow.
func NewPolicy(client kubernetes.Interface) *Policy {
	factory := informers.NewSharedInformerFactory(client, 0)
	p := &Policy{informers: factory, rbac: factory.Rbac().V1(), read: make(chan struct{})}
	// The factory starts the informers that were requested.
	p.rbac.Roles().Informer()
	p.rbac.RoleBindings().Informer()
	p.rbac.ClusterRoles().Informer()
	p.rbac.ClusterRoleBindings().Informer()
	return p
}

// startTimeout bounds each of the two steps of Follow. An object in etcd that cannot be decoded makes them endless. A
// server that is not ready within five minutes ends.
const startTimeout = 90 * time.Second

// errUnread is why Follow has not read everything.
var errUnread = fmt.Errorf("not all default roles could be created, or not all roles and bindings read, in %v",
	startTimeout)

// Follow calls ensure, which may create roles, follows the roles and bindings, and returns when all that exist have
// been read. After startTimeout it goes on nevertheless, and returns an error: requests no longer wait, and the kinds
// that could be read decide. It returns the cause of ctx when ctx is done before. It is called once.
func (p *Policy) Follow(ctx context.Context, ensure func(context.Context)) (err error) {
	within := func(step func(context.Context)) {
		limited, cancel := context.WithTimeoutCause(ctx, startTimeout, errUnread)
		defer cancel()
		if step(limited); err == nil {
			err = context.Cause(limited)
		}
	}
	within(ensure)
	p.informers.Start(ctx.Done())
	within(func(reading context.Context) { p.informers.WaitForCacheSync(reading.Done()) })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	close(p.read)
	return err
}

// Close waits until following has ended, after ctx of Follow is done.
func (p *Policy) Close() { p.informers.Shutdown() }

// grant is how a user has a rule: a binding, and its subject that names the user.
type grant struct {
	kind, name, namespace string // of the binding
	role                  rbacv1.RoleRef
	subject               rbacv1.Subject
}

// String describes the grant in kube-apiserver's words, which kubectl auth can-i prints.
func (g grant) String() string {
	name, subject := g.name, g.subject.Name
	if g.namespace != "" {
		name += "/" + g.namespace
	}
	if g.subject.Kind == rbacv1.ServiceAccountKind {
		subject += "/" + cmp.Or(g.subject.Namespace, g.namespace)
	}
	return fmt.Sprintf("%s %q of %s %q to %s %q", g.kind, name, g.role.Kind, g.role.Name, g.subject.Kind, subject)
}

// visit calls each with the rules of a user in a namespace, or cluster-wide if the namespace is empty, until it returns
// false. The error is about bindings of the user whose role doesn't exist; visit continues after them.
func (p *Policy) visit(u user.Info, namespace string, each func(by grant, rule *rbacv1.PolicyRule) bool) error {
	clusterBindings, err := p.rbac.ClusterRoleBindings().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	var missing []error
	visitBinding := func(g grant, subjects []rbacv1.Subject) (more bool) {
		var names bool
		if g.subject, names = subjectOf(subjects, u, g.namespace); !names {
			return true
		}
		rules, err := p.rulesOf(g.role, g.namespace)
		if err != nil {
			missing = append(missing, err)
		}
		for i := range rules {
			if !each(g, &rules[i]) {
				return false
			}
		}
		return true
	}
	for _, b := range clusterBindings {
		if !visitBinding(grant{kind: "ClusterRoleBinding", name: b.Name, role: b.RoleRef}, b.Subjects) {
			return utilerrors.NewAggregate(missing)
		}
	}
	if namespace == "" {
		return utilerrors.NewAggregate(missing)
	}
	bindings, err := p.rbac.RoleBindings().Lister().RoleBindings(namespace).List(labels.Everything())
	if err != nil {
		return utilerrors.NewAggregate(append(missing, err))
	}
	for _, b := range bindings {
		if !visitBinding(grant{kind: "RoleBinding", name: b.Name, namespace: namespace, role: b.RoleRef}, b.Subjects) {
			break
		}
	}
	return utilerrors.NewAggregate(missing)
}

// rules returns all rules of a user in a namespace, or cluster-wide if the namespace is empty. With an error, the rules
// are those that were found.
func (p *Policy) rules(u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	var all []rbacv1.PolicyRule
	err := p.visit(u, namespace, func(_ grant, rule *rbacv1.PolicyRule) bool {
		all = append(all, *rule)
		return true
	})
	return all, err
}

// rulesOf returns the rules of the role that a binding in a namespace refers to. The error for a role that doesn't
// exist is an API status.
func (p *Policy) rulesOf(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	switch ref.Kind {
	case "Role":
		role, err := p.rbac.Roles().Lister().Roles(namespace).Get(ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	case "ClusterRole":
		role, err := p.rbac.ClusterRoles().Lister().Get(ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	default:
		return nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
	}
}
