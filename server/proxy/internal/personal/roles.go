package personal

import (
	"encoding/json"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Grant is what views need of a role or a binding.
type Grant struct {
	Subjects []string // of a binding: who it is for
	Role     string   // of a binding: the role that it names; of a role: itself
	// Namespaces are the names in a role's rules for single namespaces.
	Namespaces []string
}

// Granting is a role or a binding.
type Granting interface {
	keepwatch.Object
	Grant() *Grant // nil if it is not known
}

// ParseGrant reads a role or a binding in JSON.
func ParseGrant(key keepwatch.Key, text []byte) *Grant {
	var o struct {
		Rules    []rbacv1.PolicyRule
		Subjects []rbacv1.Subject
		RoleRef  *rbacv1.RoleRef
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return nil
	}
	g := &Grant{}
	for _, s := range o.Subjects {
		g.Subjects = append(g.Subjects, subjectOf(s, key.Namespace))
	}
	switch {
	case o.RoleRef != nil && o.RoleRef.Kind == "Role":
		g.Role = roleName(keepwatch.Key{Namespace: key.Namespace, Name: o.RoleRef.Name})
	case o.RoleRef != nil:
		g.Role = roleName(keepwatch.Key{Name: o.RoleRef.Name})
	default:
		g.Role = roleName(key)
	}
	for _, rule := range o.Rules {
		if slices.Contains(rule.Resources, "namespaces") || slices.Contains(rule.Resources, rbacv1.ResourceAll) {
			g.Namespaces = append(g.Namespaces, rule.ResourceNames...)
		}
	}
	return g
}

// roleName names a role: a cluster's has no namespace.
func roleName(key keepwatch.Key) string { return key.Namespace + "/" + key.Name }

const (
	userPrefix  = "user "
	groupPrefix = "group "
)

func subjectOf(s rbacv1.Subject, namespace string) string {
	switch s.Kind {
	case rbacv1.GroupKind:
		return groupPrefix + s.Name
	case rbacv1.ServiceAccountKind:
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		return userPrefix + serviceaccount.MakeUsername(namespace, s.Name)
	}
	return userPrefix + s.Name
}

// subjectsOf returns the subjects of bindings that apply to a user.
func subjectsOf(u user.Info) []string {
	all := []string{userPrefix + u.GetName()}
	for _, group := range u.GetGroups() {
		all = append(all, groupPrefix+group)
	}
	return all
}

const (
	bySubject = "subject"
	byRole    = "role"
)

// Roles has the bindings and roles of a cluster as stores of [Granting] objects. It is safe for concurrent use.
type Roles struct {
	Bindings, ClusterBindings, ClusterRoles *store.Store
}

// Index prepares a store of bindings, before it has any.
func Index(bindings *store.Store) error {
	of := func(values func(*Grant) []string) store.IndexFunc {
		return func(o keepwatch.Object) []string {
			if g, ok := o.(Granting); ok && g.Grant() != nil {
				return values(g.Grant())
			}
			return nil
		}
	}
	return bindings.AddIndexes(map[string]store.IndexFunc{
		bySubject: of(func(g *Grant) []string { return g.Subjects }),
		byRole:    of(func(g *Grant) []string { return []string{g.Role} }),
	})
}

// bound returns the namespaces in which a user has a binding.
func (r *Roles) bound(u user.Info) map[string]bool {
	namespaces := map[string]bool{}
	if index, ok := r.Bindings.Snapshot().Index(bySubject); ok {
		for _, subject := range subjectsOf(u) {
			for key := range index.Keys(subject) {
				namespaces[key.Namespace] = true
			}
		}
	}
	return namespaces
}

// named returns the names in the rules about namespaces that bindings of the whole cluster give a user.
func (r *Roles) named(u user.Info) map[string]bool {
	names := map[string]bool{}
	index, ok := r.ClusterBindings.Snapshot().Index(bySubject)
	if !ok {
		return names
	}
	roles := r.ClusterRoles.Snapshot()
	for _, subject := range subjectsOf(u) {
		for o := range index.Objects(subject) {
			role, ok := roles.Get(keepwatch.Key{Name: strings.TrimPrefix(o.(Granting).Grant().Role, "/")})
			if !ok {
				continue
			}
			if g := role.(Granting).Grant(); g != nil {
				for _, name := range g.Namespaces {
					names[name] = true
				}
			}
		}
	}
	return names
}

// Touched returns the subjects that changes of roles and bindings concern. It reports false if that may be anybody.
func (r *Roles) Touched(changes []keepwatch.Change) (subjects map[string]bool, ok bool) {
	subjects = map[string]bool{}
	for _, c := range changes {
		for _, o := range []keepwatch.Object{c.Prior, c.Object} {
			if o == nil {
				continue
			}
			g, isGranting := o.(Granting)
			if !isGranting || g.Grant() == nil {
				return nil, false
			}
			for _, subject := range g.Grant().Subjects {
				subjects[subject] = true
			}
			if len(g.Grant().Subjects) == 0 {
				r.addSubjects(subjects, g.Grant().Role)
			}
		}
	}
	return subjects, true
}

// addSubjects adds the subjects of a role.
func (r *Roles) addSubjects(subjects map[string]bool, role string) {
	for _, bindings := range []*store.Store{r.Bindings, r.ClusterBindings} {
		index, ok := bindings.Snapshot().Index(byRole)
		if !ok {
			continue
		}
		for o := range index.Objects(role) {
			for _, subject := range o.(Granting).Grant().Subjects {
				subjects[subject] = true
			}
		}
	}
}
