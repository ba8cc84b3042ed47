package rbac

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// What a user may do, may list and may grant is decided by all roles and bindings, also if it is asked before they were
// read. Masters do not wait: the server reads its roles as one.
func TestDecisionsWaitForThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		of := metav1.ObjectMeta{Name: "jane", Namespace: "default"}
		rules := []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{rbacv1.GroupName},
			Resources: []string{"roles"}}}
		policy := NewPolicy(fake.NewClientset(&rbacv1.Role{ObjectMeta: of, Rules: rules}, &rbacv1.RoleBinding{
			ObjectMeta: of, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "jane"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "jane"}},
		}))
		rights := NewAuthorizer(policy)
		jane, master := &user.DefaultInfo{Name: "jane"}, &user.DefaultInfo{Groups: []string{user.SystemPrivilegedGroup}}
		request := func(by user.Info) authorizer.AttributesRecord {
			return authorizer.AttributesRecord{User: by, Verb: "create", APIGroup: rbacv1.GroupName, Resource: "roles",
				Namespace: "default", ResourceRequest: true}
		}
		grant := func(by user.Info) error {
			return NewEscalation(rights).Validate(ctx, admission.NewAttributesRecord(
				&rbacv1.Role{ObjectMeta: of, Rules: rules}, nil, rbacv1.SchemeGroupVersion.WithKind("Role"), "default", "other",
				rbacv1.SchemeGroupVersion.WithResource("roles"), "", admission.Create, nil, false, by), nil)
		}
		if decision, _, _ := rights.Authorize(ctx, request(master)); decision != authorizer.DecisionAllow {
			t.Errorf("a master: %v", decision)
		}
		if err := grant(master); err != nil {
			t.Errorf("a master: %v", err)
		}

		asked := map[string]func() (right bool, got any){
			"decision": func() (bool, any) {
				decision, reason, err := rights.Authorize(ctx, request(jane))
				return decision == authorizer.DecisionAllow && err == nil, reason
			},
			"rules": func() (bool, any) {
				resources, _, _, err := rights.RulesFor(ctx, jane, "default")
				return len(resources) == 1 && err == nil, err
			},
			"grant": func() (bool, any) {
				err := grant(jane)
				return err == nil, err
			},
		}
		answered := make(chan string, len(asked))
		for name, ask := range asked {
			go func() {
				if right, got := ask(); !right {
					t.Errorf("%s: %v", name, got)
				}
				answered <- name
			}()
		}
		synctest.Wait()
		if len(answered) > 0 {
			t.Errorf("%s was answered before the roles were read", <-answered)
		}
		if err := policy.Follow(ctx, func(context.Context) {}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(answered) < len(asked) {
			t.Errorf("%d of %d were answered", len(answered), len(asked))
		}
		cancel()
		policy.Close()
	})
}

// Roles that cannot be read, or created, delay no request after startTimeout: the kinds that could be read decide.
func TestDecisionsDoNotWaitForEver(t *testing.T) {
	for name, broken := range map[string]string{"creation": "", "reading": "clusterroles"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				of := metav1.ObjectMeta{Name: "jane", Namespace: "default"}
				client := fake.NewClientset(&rbacv1.Role{ObjectMeta: of, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"},
					APIGroups: []string{""}, Resources: []string{"pods"}}}}, &rbacv1.RoleBinding{
					ObjectMeta: of, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "jane"},
					Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "jane"}},
				})
				if broken != "" {
					client.PrependReactor("list", broken, func(clienttesting.Action) (bool, runtime.Object, error) {
						return true, nil, errors.New("an object cannot be decoded")
					})
				}
				policy, begun := NewPolicy(client), time.Now()
				err := policy.Follow(ctx, func(ctx context.Context) {
					if broken == "" {
						<-ctx.Done()
					}
				})
				waited := time.Since(begun)
				if !errors.Is(err, errUnread) || waited < startTimeout || waited > startTimeout+time.Second {
					t.Errorf("%v after %v", err, waited)
				}
				begun = time.Now()
				for verb, want := range map[string]authorizer.Decision{"get": authorizer.DecisionAllow,
					"delete": authorizer.DecisionNoOpinion} {
					got, reason, err := NewAuthorizer(policy).Authorize(ctx, authorizer.AttributesRecord{
						User: &user.DefaultInfo{Name: "jane"}, Verb: verb, Resource: "pods", Namespace: "default", ResourceRequest: true})
					if got != want || err != nil || time.Since(begun) > 0 {
						t.Errorf("%s: %v, %s, %v after %v", verb, got, reason, err, time.Since(begun))
					}
				}
				cancel()
				policy.Close()
			})
		})
	}
}
