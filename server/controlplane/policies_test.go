package controlplane_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// policyRules match creates and updates of config maps and other resources.
func policyRules(resources ...string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: resources},
		},
	}}}
}

// bindPolicy binds a ValidatingAdmissionPolicy to a namespace, by their common name.
func bindPolicy(t *testing.T, c clients, ns string, ref *admissionregistrationv1.ParamRef,
	actions ...admissionregistrationv1.ValidationAction) {
	t.Helper()
	must(c.typed.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(),
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: ns, ValidationActions: actions, ParamRef: ref, MatchResources: inNamespace(ns),
			},
		}, metav1.CreateOptions{}))(t)
}

func inNamespace(ns string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
	}
}

func createPolicy(t *testing.T, c clients, name string, spec admissionregistrationv1.ValidatingAdmissionPolicySpec) {
	t.Helper()
	must(c.typed.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(),
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
		}, metav1.CreateOptions{}))(t)
}

// denied polls until a config map is refused, and returns the error. A timeout of a busy machine is no refusal.
func denied(t *testing.T, c clients, ns string, object *corev1.ConfigMap) (refusal error) {
	t.Helper()
	await.State(t, "a config map is refused", func() (bool, string) {
		_, refusal = c.typed.CoreV1().ConfigMaps(ns).Create(t.Context(), object,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return refusal != nil && !apierrors.IsTimeout(refusal), fmt.Sprint("the error is ", refusal)
	})
	return refusal
}

func configMapOf(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

// A ValidatingAdmissionPolicy refuses writes of built-in and custom kinds, in a dry run, too, with its message and
// reason.
func TestValidatingAdmissionPolicy(t *testing.T) {
	t.Parallel()
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	gvr := newCRD(t, c, "policed")
	reason := metav1.StatusReasonForbidden
	createPolicy(t, c, ns, admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: policyRules("configmaps", "policed"),
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "not-exempt",
			Expression: "!object.metadata.name.startsWith('exempt')"}},
		Variables: []admissionregistrationv1.Variable{{Name: "name", Expression: "object.metadata.name"}},
		Validations: []admissionregistrationv1.Validation{{
			Expression: "variables.name.startsWith('good')", MessageExpression: "'the name ' + variables.name + ' is bad'",
			Reason: &reason,
		}},
	})
	bindPolicy(t, c, ns, nil, admissionregistrationv1.Deny)
	refusal := denied(t, c, ns, configMapOf("bad", nil))
	want := fmt.Sprintf(
		`configmaps "bad" is forbidden: ValidatingAdmissionPolicy '%s' with binding '%s' denied request: the name bad is bad`,
		ns, ns)
	if refusal.Error() != want || !apierrors.IsForbidden(refusal) {
		t.Errorf("the refusal is %q, want %q", refusal, want)
	}
	for _, name := range []string{"good", "exempt"} {
		must(c.typed.CoreV1().ConfigMaps(ns).Create(t.Context(), configMapOf(name, nil), metav1.CreateOptions{}))(t)
	}
	custom := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(), "kind": "Policed", "metadata": map[string]any{"name": "bad"},
	}}
	if _, err := c.dynamic.Resource(gvr).Namespace(ns).Create(t.Context(), custom,
		metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the custom resource is answered with %v", err)
	}

	// Without the policy, the writes are accepted again.
	if err := c.typed.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(t.Context(), ns,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "a config map is accepted", func() (bool, string) {
		_, err := c.typed.CoreV1().ConfigMaps(ns).Create(t.Context(), configMapOf("bad", nil), metav1.CreateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// warningList collects the warnings of responses.
type warningList struct {
	mu    sync.Mutex
	texts []string
}

func (w *warningList) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warningList) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.texts) == 0 {
		return ""
	}
	return w.texts[len(w.texts)-1]
}

// With the action Warn, a write is accepted with a warning.
func TestPolicyWarns(t *testing.T) {
	t.Parallel()
	warnings := &warningList{}
	config := shared.RESTConfig()
	config.WarningHandler = warnings
	c := connect(t, config)
	ns := newNamespace(t, c)
	createPolicy(t, c, ns, admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: policyRules("configmaps"),
		Validations:      []admissionregistrationv1.Validation{{Expression: "false", Message: "never"}},
		AuditAnnotations: []admissionregistrationv1.AuditAnnotation{{Key: "seen",
			ValueExpression: "'the name ' + object.metadata.name"}},
	})
	bindPolicy(t, c, ns, nil, admissionregistrationv1.Warn, admissionregistrationv1.Audit)
	want := fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': never", ns, ns)
	await.State(t, "a write is warned of", func() (bool, string) {
		must(c.typed.CoreV1().ConfigMaps(ns).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, metav1.CreateOptions{}))(t)
		return warnings.last() == want, warnings.last()
	})
}

// Parameters are a custom resource or a config map. A missing one is an error, or allows, as the binding says.
func TestPolicyParameters(t *testing.T) {
	t.Parallel()
	c := connect(t, shared.RESTConfig())
	gvr := newCRD(t, c, "limits")
	deny, allow := admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction
	for _, kind := range []string{"ConfigMap", "Limits"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t, c)
			version := "v1"
			if kind != "ConfigMap" {
				version = gvr.GroupVersion().String()
			}
			createPolicy(t, c, ns, admissionregistrationv1.ValidatingAdmissionPolicySpec{
				ParamKind:        &admissionregistrationv1.ParamKind{APIVersion: version, Kind: kind},
				MatchConstraints: policyRules("secrets"),
				Validations: []admissionregistrationv1.Validation{
					{Expression: "object.metadata.name == params.metadata.labels['allowed']", Message: "another name"}},
			})
			bindPolicy(t, c, ns, &admissionregistrationv1.ParamRef{Name: "settings", Namespace: ns,
				ParameterNotFoundAction: &deny}, admissionregistrationv1.Deny)
			create := func(name string) error {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
				_, err := c.typed.CoreV1().Secrets(ns).Create(t.Context(), secret,
					metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return err
			}
			answered := func(name, want string) {
				t.Helper()
				await.State(t, "the answer is "+want, func() (bool, string) {
					err := fmt.Sprint(create(name))
					return strings.Contains(err, want), err
				})
			}
			answered("one", "no params found for policy binding with `Deny` parameterNotFoundAction")
			settings := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": "settings",
					"labels": map[string]any{"allowed": "one"}},
			}}
			resource := gvr
			if kind == "ConfigMap" {
				resource = corev1.SchemeGroupVersion.WithResource("configmaps")
			}
			must(c.dynamic.Resource(resource).Namespace(ns).Create(t.Context(), settings, metav1.CreateOptions{}))(t)
			answered("one", "<nil>")
			answered("two", "denied request: another name")
			binding := must(c.typed.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(t.Context(), ns,
				metav1.GetOptions{}))(t)
			binding.Spec.ParamRef.ParameterNotFoundAction, binding.Spec.ParamRef.Name = &allow, "missing"
			must(c.typed.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Update(t.Context(), binding,
				metav1.UpdateOptions{}))(t)
			answered("two", "<nil>")
		})
	}
}

// A MutatingAdmissionPolicy changes objects, by a patch or by an apply configuration, before validating policies see
// them.
func TestMutatingAdmissionPolicy(t *testing.T) {
	t.Parallel()
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	gvr := newCRD(t, c, "mutated")
	registrations := c.typed.AdmissionregistrationV1()
	must(registrations.MutatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   policyRules("configmaps", "mutated"),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
					Expression: `Object{metadata: Object.metadata{labels: Object.metadata.labels{applied: "yes"}}}`},
			}, {
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{
					Expression: `[JSONPatch{op: "add", path: "/metadata/labels/patched", value: "yes"}]`},
			}},
		},
	}, metav1.CreateOptions{}))(t)
	must(registrations.MutatingAdmissionPolicyBindings().Create(t.Context(),
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: ns,
				MatchResources: inNamespace(ns)},
		}, metav1.CreateOptions{}))(t)
	createPolicy(t, c, ns, admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: policyRules("configmaps", "mutated"),
		Validations: []admissionregistrationv1.Validation{
			{Expression: "has(object.metadata.labels) && 'patched' in object.metadata.labels"}},
	})
	bindPolicy(t, c, ns, nil, admissionregistrationv1.Deny)
	for _, resource := range []string{"configmaps", "mutated"} {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"generateName": "a-"},
		}}
		target := corev1.SchemeGroupVersion.WithResource("configmaps")
		if resource == "mutated" {
			target = gvr
			object.SetAPIVersion(gvr.GroupVersion().String())
			object.SetKind("Mutated")
		}
		await.State(t, "an object is mutated", func() (bool, string) {
			got, err := c.dynamic.Resource(target).Namespace(ns).Create(t.Context(), object, metav1.CreateOptions{})
			if err != nil {
				return false, err.Error()
			}
			return got.GetLabels()["applied"] == "yes" && got.GetLabels()["patched"] == "yes", fmt.Sprint(got.GetLabels())
		})
	}
}

// Invalid policies and bindings are refused with the reason.
func TestInvalidPolicies(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	validation := func(expression string) []admissionregistrationv1.Validation {
		return []admissionregistrationv1.Validation{{Expression: expression}}
	}
	costly := "object.spec.a.all(x, object.spec.a.all(y, object.spec.a.all(z, object.spec.a.all(w, x == y && z == w))))"
	for _, test := range []struct {
		name string
		spec admissionregistrationv1.ValidatingAdmissionPolicySpec
		want string
	}{
		{"nothing", admissionregistrationv1.ValidatingAdmissionPolicySpec{}, "[spec.matchConstraints: Required value, " +
			"spec.validations: Required value: validations or auditAnnotations must contain at least one item, " +
			"spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item]"},
		{"syntax", admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: policyRules("pods"),
			Validations: validation("object.")},
			`spec.validations[0].expression: Invalid value: "object.": compilation failed: ERROR: <input>:1:8: Syntax error`},
		{"no condition", admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: policyRules("pods"),
			Validations: validation("'text'")},
			`must evaluate to bool`},
		{"no params", admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: policyRules("pods"),
			Validations: validation("params.x")},
			`undeclared reference to 'params'`},
		{"variable", admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: policyRules("pods"), Variables: []admissionregistrationv1.Variable{{Name: "for", Expression: "1"}},
			Validations: validation("true"),
		}, `spec.variables[0].name: Invalid value: "for": must be a valid CEL identifier`},
		{"rules", admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: policyRules("*", "pods"),
			Validations: validation("true")},
			`if '*' is present, must not specify other resources without subresources`},
		{"param kind", admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind: &admissionregistrationv1.ParamKind{APIVersion: "a/b/c"}, MatchConstraints: policyRules("pods"),
			Validations: validation("true"),
		}, `[spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c, spec.paramKind.kind: Required value]`},
		{"costly", admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: policyRules("pods"),
			Validations: validation(costly)}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := c.typed.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(),
				&admissionregistrationv1.ValidatingAdmissionPolicy{
					ObjectMeta: metav1.ObjectMeta{Name: "invalid"}, Spec: test.spec,
				}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if test.want == "" { // its cost is only known with an object
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the answer is %v, want %s", err, test.want)
			}
		})
	}
	_, err := c.typed.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(),
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "invalid"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				ParamRef: &admissionregistrationv1.ParamRef{}, ValidationActions: []admissionregistrationv1.ValidationAction{"Deny",
					"Warn"},
			},
		}, metav1.CreateOptions{})
	for _, want := range []string{"spec.policyName: Required value",
		"spec.paramRef: Required value: one of name or selector must be specified",
		"spec.paramRef.parameterNotFoundAction: Required value", "must not contain both Deny and Warn"} {
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("the binding is answered with %v, want %s", err, want)
		}
	}
}

// An expression that fails refuses the request, or is ignored, as failurePolicy says. One that costs too much fails.
func TestPolicyFailures(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ignore := admissionregistrationv1.Ignore
	many := map[string]string{}
	for i := range 400 {
		many[fmt.Sprint("key-", i)] = "value"
	}
	costly := "object.data.all(a, object.data.all(b, object.data.all(d, object.data[a] == object.data[b] && object.data[b] == object.data[d])))"
	for _, test := range []struct{ name, expression, want string }{
		{"missing field", "object.data.missing == 'x'", "no such key: missing"},
		{"cost", costly, "actual cost limit exceeded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ns := newNamespace(t, c)
			spec := admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: policyRules("configmaps"),
				Validations:      []admissionregistrationv1.Validation{{Expression: test.expression}},
			}
			createPolicy(t, c, ns, spec)
			bindPolicy(t, c, ns, nil, admissionregistrationv1.Deny)
			if refusal := denied(t, c, ns, configMapOf("many", many)); !strings.Contains(refusal.Error(), test.want) {
				t.Errorf("the refusal is %v, want %s", refusal, test.want)
			}
			if test.name == "cost" { // each evaluation takes long
				return
			}
			policy := must(c.typed.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), ns,
				metav1.GetOptions{}))(t)
			policy.Spec.FailurePolicy = &ignore
			must(c.typed.AdmissionregistrationV1().ValidatingAdmissionPolicies().Update(t.Context(), policy,
				metav1.UpdateOptions{}))(t)
			await.State(t, "the failure is ignored", func() (bool, string) {
				_, err := c.typed.CoreV1().ConfigMaps(ns).Create(t.Context(), configMapOf("many", many), metav1.CreateOptions{})
				return err == nil, fmt.Sprint(err)
			})
		})
	}
}

// A policy that refuses everything does not refuse policies, nor reviews: it can be deleted.
func TestPolicyOfEverything(t *testing.T) {
	t.Parallel()
	server := start(t, controlplane.Options{})
	c := connect(t, server.RESTConfig())
	all := policyRules("*/*")
	all.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
	createPolicy(t, c, "all", admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: all, Validations: []admissionregistrationv1.Validation{{Expression: "false"}},
	})
	must(c.typed.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(),
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "all"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "all",
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
		}, metav1.CreateOptions{}))(t)
	denied(t, c, "default", configMapOf("a", nil))

	// A server can be stopped, and writes can run, while a policy is deleted.
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, err := c.typed.CoreV1().ConfigMaps("default").Create(ctx, configMapOf(fmt.Sprintf("w-%d-%d", i, n), nil),
					metav1.CreateOptions{})
				if err != nil && !strings.Contains(err.Error(), "denied request") && ctx.Err() == nil {
					t.Errorf("a write is answered with %v", err)
				}
			}
		})
	}
	defer writers.Wait()
	defer cancel()
	if err := c.typed.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(t.Context(), "all",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "a config map is accepted", func() (bool, string) {
		_, err := c.typed.CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "b-"}}, metav1.CreateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// With RBAC, nobody uses parameters that they may not read. With controllers, the status has the warnings of types.
func TestPolicyRightsAndStatus(t *testing.T) {
	t.Parallel()
	server := start(t, controlplane.Options{Authorization: controlplane.RBAC, Controllers: true})
	c := connect(t, server.RESTConfig())
	must(c.typed.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "policies"},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{"admissionregistration.k8s.io"},
			Resources: []string{"*"}}},
	}, metav1.CreateOptions{}))(t)
	must(c.typed.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "policies"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "policies"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "jane"}},
	}, metav1.CreateOptions{}))(t)
	config := rest.CopyConfig(server.RESTConfig())
	config.Impersonate.UserName = "jane"
	jane := must(kubernetes.NewForConfig(config))(t)
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "typed"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: policyRules("pods"),
			Validations:      []admissionregistrationv1.Validation{{Expression: "object.spec.mispelt == 1"}},
		},
	}
	policy.Spec.MatchConstraints.ResourceRules[0].APIGroups = []string{""}
	policy.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{"v1"}
	await.State(t, "jane may create policies", func() (bool, string) {
		_, err := jane.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), policy,
			metav1.CreateOptions{})
		return err == nil, fmt.Sprint(err)
	})
	await.State(t, "the status has a warning", func() (bool, string) {
		got := must(c.typed.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), "typed",
			metav1.GetOptions{}))(t)
		checked := got.Status.TypeChecking
		return checked != nil && len(checked.ExpressionWarnings) == 1 &&
			strings.Contains(checked.ExpressionWarnings[0].Warning, "undefined field 'mispelt'") &&
			got.Status.ObservedGeneration == 1, fmt.Sprint(got.Status)
	})
	policy.Name, policy.Spec.ParamKind = "params", &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "Secret"}
	_, err := jane.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), policy,
		metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(),
			`must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`) {
		t.Errorf("the policy is answered with %v", err)
	}
	must(c.typed.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), policy,
		metav1.CreateOptions{}))(t)
	deny := admissionregistrationv1.DenyAction
	_, err = jane.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(),
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "params"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: "params", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				ParamRef: &admissionregistrationv1.ParamRef{Name: "settings", Namespace: "kube-system",
					ParameterNotFoundAction: &deny},
			},
		}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), `does not have "get" permission on the object referenced by paramRef`) {
		t.Errorf("the binding is answered with %v", err)
	}
	if code := err.(*apierrors.StatusError).ErrStatus.Code; code != http.StatusUnprocessableEntity {
		t.Errorf("the status is %d", code)
	}
}
