package builtin

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/apps/poddisruptionbudget"
)

// evictionREST serves pods/eviction: it deletes a pod if its PodDisruptionBudget allows a disruption, and counts it in
// the budget's status. As in kube-apiserver, the status is that which a controller, or a test, has written last.
type evictionREST struct {
	pods    *genericregistry.Store // with the rules of pods/status
	budgets *genericregistry.Store // with the rules of poddisruptionbudgets/status
}

var (
	_ rest.NamedCreater             = (*evictionREST)(nil)
	_ rest.GroupVersionKindProvider = (*evictionREST)(nil)
	_ rest.GroupVersionAcceptor     = (*evictionREST)(nil)
)

// maxDisruptedPods is the number of evictions that a budget's controller may not have confirmed yet.
const maxDisruptedPods = 2000

// conflictRetry is how often a write is repeated after a conflict: for 10 s.
var conflictRetry = wait.Backoff{Steps: 20, Duration: 500 * time.Millisecond, Factor: 1, Jitter: 0.1}

func (r *evictionREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return policyv1.SchemeGroupVersion.WithKind("Eviction")
}

// AcceptsGroupVersion also accepts the version that older clients send.
func (r *evictionREST) AcceptsGroupVersion(gv schema.GroupVersion) bool {
	return gv == policyv1.SchemeGroupVersion || gv == policyv1beta1.SchemeGroupVersion
}

// addEvictionConversion lets Evictions be read in v1beta1. The version is not served.
func addEvictionConversion(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(policyv1beta1.SchemeGroupVersion, &policyv1beta1.Eviction{})
	return scheme.AddConversionFunc((*policyv1beta1.Eviction)(nil), (*policyv1.Eviction)(nil),
		func(a, b any, _ conversion.Scope) error {
			in, out := a.(*policyv1beta1.Eviction), b.(*policyv1.Eviction)
			out.ObjectMeta, out.DeleteOptions = in.ObjectMeta, in.DeleteOptions
			return nil
		})
}

func (r *evictionREST) New() runtime.Object { return &policyv1.Eviction{} }

// Destroy does nothing: the storages are those of the main resources.
func (r *evictionREST) Destroy() {}

// Create evicts the pod of a name. It returns 429 Too Many Requests if the budget allows no disruption, and a failure
// with the status 500 if the pod has more than one budget.
func (r *evictionREST) Create(ctx context.Context, name string, object runtime.Object, validate rest.ValidateObjectFunc,
	options *metav1.CreateOptions) (runtime.Object, error) {
	eviction := object.(*policyv1.Eviction)
	given, err := deleteOptions(eviction, name, options)
	if err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, eviction.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	pod, deleted, err := r.deleteUnprotected(ctx, name, given)
	if err != nil {
		return nil, err
	}
	if deleted {
		return &metav1.Status{Status: metav1.StatusSuccess}, nil
	}
	return r.evictProtected(ctx, pod, given)
}

// deleteOptions returns the options of an eviction's deletion, checked, and with the request's dry run.
func deleteOptions(eviction *policyv1.Eviction, name string,
	options *metav1.CreateOptions) (*metav1.DeleteOptions, error) {
	if name != eviction.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	given := eviction.DeleteOptions
	if given == nil {
		return &metav1.DeleteOptions{DryRun: options.DryRun}, nil
	}
	if given.IgnoreStoreReadErrorWithClusterBreakingPotential != nil &&
		*given.IgnoreStoreReadErrorWithClusterBreakingPotential {
		return nil, apierrors.NewInvalid(policyv1.SchemeGroupVersion.WithKind("Eviction").GroupKind(), name, field.ErrorList{
			field.Invalid(field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"), true,
				"can not be set for pod eviction, try after removing the option"),
		})
	}
	switch {
	case len(given.DryRun) == 0:
		given.DryRun = options.DryRun
	case len(options.DryRun) > 0 && !reflect.DeepEqual(options.DryRun, given.DryRun):
		//lint:ignore ST1005 the message of kube-apiserver
		return nil, fmt.Errorf("Non-matching dry-run options in request and content: %v and %v", options.DryRun, given.DryRun)
	}
	return given, nil
}

// deleteUnprotected deletes a pod that no budget protects, since it does not run or is being deleted. Otherwise it
// returns the pod.
func (r *evictionREST) deleteUnprotected(ctx context.Context, name string,
	given *metav1.DeleteOptions) (pod *corev1.Pod, deleted bool, err error) {
	repeat := func(err error) bool { return apierrors.IsConflict(err) && !namesVersion(given) }
	err = retry.OnError(conflictRetry, repeat, func() error {
		object, err := r.pods.Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod = object.(*corev1.Pod)
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
			pod.DeletionTimestamp != nil
		if !ended && pod.Status.Phase != corev1.PodPending {
			return nil
		}
		options := given
		if !ended && !namesVersion(given) { // it may start to run meanwhile
			options = withVersion(given, pod.ResourceVersion)
		}
		if err := r.deletePod(ctx, name, options); err != nil {
			return err
		}
		deleted = true
		return nil
	})
	return pod, deleted, err
}

// namesVersion reports whether a deletion is of one version of the object.
func namesVersion(options *metav1.DeleteOptions) bool {
	return options.Preconditions != nil && options.Preconditions.ResourceVersion != nil
}

// withVersion returns options for one version of the object.
func withVersion(options *metav1.DeleteOptions, version string) *metav1.DeleteOptions {
	options = options.DeepCopy()
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	options.Preconditions.ResourceVersion = &version
	return options
}

// evictProtected deletes a pod that runs, if its budget allows it.
func (r *evictionREST) evictProtected(ctx context.Context, pod *corev1.Pod,
	given *metav1.DeleteOptions) (runtime.Object, error) {
	budgets, err := r.budgetsOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	if len(budgets) > 1 {
		return &metav1.Status{
			Status: metav1.StatusFailure, Code: 500,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}, nil
	}
	options := given
	var name string
	uncounted := len(budgets) == 1 && !isReady(pod) && allowsUnready(budgets[0])
	if len(budgets) == 1 {
		name = budgets[0].Name
	}
	switch {
	case uncounted: // it is no disruption, unless the pod becomes ready
		options = withVersion(given, pod.ResourceVersion)
	case len(budgets) == 1:
		if err := r.count(ctx, pod, budgets[0], dryrun.IsDryRun(given.DryRun)); err != nil {
			return nil, err
		}
	}
	err = r.deletePod(ctx, pod.Name, options)
	if apierrors.IsConflict(err) && uncounted && !namesVersion(given) {
		return nil, tryLater(name)
	}
	if err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// budgetsOf returns the budgets that select a pod.
func (r *evictionREST) budgetsOf(ctx context.Context, pod *corev1.Pod) ([]*policyv1.PodDisruptionBudget, error) {
	list, err := r.budgets.List(ctx, nil)
	if err != nil {
		return nil, err
	}
	var found []*policyv1.PodDisruptionBudget
	for i := range list.(*policyv1.PodDisruptionBudgetList).Items {
		budget := &list.(*policyv1.PodDisruptionBudgetList).Items[i]
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) { // an invalid selector selects nothing
			found = append(found, budget)
		}
	}
	return found, nil
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// allowsUnready reports whether a budget lets pods go that are not ready, and does not count them.
func allowsUnready(budget *policyv1.PodDisruptionBudget) bool {
	if policy := budget.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0
}

// count counts the disruption by a pod in the status of its budget, or returns why the budget does not allow it.
func (r *evictionREST) count(ctx context.Context, pod *corev1.Pod, budget *policyv1.PodDisruptionBudget,
	dryRun bool) error {
	ctx = about(ctx, policyv1.Resource("poddisruptionbudgets"))
	first := true
	err := retry.RetryOnConflict(conflictRetry, func() error {
		if !first {
			object, err := r.budgets.Get(ctx, budget.Name, &metav1.GetOptions{})
			if err != nil {
				return err
			}
			budget = object.(*policyv1.PodDisruptionBudget)
		}
		first = false
		if err := refusal(budget); err != nil {
			return err
		}
		if dryRun {
			return nil
		}
		counted := withDisruption(budget, pod.Name)
		_, _, err := r.budgets.Update(ctx, budget.Name, rest.DefaultUpdatedObjectInfo(counted), rest.ValidateAllObjectFunc,
			rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		return err
	})
	if wait.Interrupted(err) {
		return apierrors.NewTimeoutError(fmt.Sprintf("couldn't update PodDisruptionBudget %q due to conflicts", budget.Name),
			10)
	}
	return err
}

// withDisruption returns a budget with one disruption more.
func withDisruption(budget *policyv1.PodDisruptionBudget, pod string) *policyv1.PodDisruptionBudget {
	counted := budget.DeepCopy()
	counted.Status.DisruptionsAllowed--
	if counted.Status.DisruptionsAllowed == 0 {
		poddisruptionbudget.UpdateDisruptionAllowedCondition(counted)
	}
	if counted.Status.DisruptedPods == nil {
		counted.Status.DisruptedPods = map[string]metav1.Time{}
	}
	counted.Status.DisruptedPods[pod] = metav1.Now()
	return counted
}

// refusal returns why a budget allows no disruption; nil if it does.
func refusal(budget *policyv1.PodDisruptionBudget) error {
	status := budget.Status
	resource := schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}
	switch {
	case status.ObservedGeneration < budget.Generation:
		return tryLater(budget.Name)
	case status.DisruptionsAllowed < 0:
		return apierrors.NewForbidden(resource, budget.Name, errors.New("pdb disruptions allowed is negative"))
	case len(status.DisruptedPods) > maxDisruptedPods:
		return apierrors.NewForbidden(resource, budget.Name,
			errors.New("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case status.DisruptionsAllowed > 0:
		return nil
	}
	condition := meta.FindStatusCondition(status.Conditions, policyv1.DisruptionAllowedCondition)
	reported := condition != nil && condition.Status == metav1.ConditionFalse && condition.Message != ""
	message := fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", budget.Name)
	switch {
	case reported && condition.Reason == policyv1.SyncFailedReason:
		message += " because it failed sync: " + condition.Message
	case status.CurrentHealthy <= status.DesiredHealthy:
		message = fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", budget.Name,
			status.DesiredHealthy, status.CurrentHealthy)
	case reported:
		message += fmt.Sprintf(" (%s): %s", condition.Reason, condition.Message)
	}
	return tooManyDisruptions(0, message)
}

// tryLater returns the error of an eviction for which the budget's status is not current.
func tryLater(budget string) error {
	return tooManyDisruptions(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget))
}

func tooManyDisruptions(retryAfterSeconds int, message string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.",
		retryAfterSeconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: message})
	return err
}

// deletePod adds the condition DisruptionTarget to a pod, and deletes it.
func (r *evictionREST) deletePod(ctx context.Context, name string, options *metav1.DeleteOptions) error {
	if !dryrun.IsDryRun(options.DryRun) {
		marked, _, err := r.pods.Update(ctx, name, rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _,
			old runtime.Object) (runtime.Object, error) {
			pod := old.DeepCopyObject().(*corev1.Pod)
			if err := checkPodPreconditions(pod, options.Preconditions); err != nil {
				return nil, err
			}
			setPodCondition(pod, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
				Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
			})
			return pod, nil
		}), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		if namesVersion(options) {
			options = withVersion(options, marked.(*corev1.Pod).ResourceVersion)
		}
	}
	_, _, err := r.pods.Delete(ctx, name, rest.ValidateAllObjectFunc, options)
	return err
}

// checkPodPreconditions returns a conflict unless a pod is the one that an eviction names.
func checkPodPreconditions(pod *corev1.Pod, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	resource := schema.GroupResource{Resource: "Pod"}
	if uid := p.UID; uid != nil && *uid != "" && *uid != pod.UID {
		return apierrors.NewConflict(resource, pod.Name,
			fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). "+
				"The object might have been deleted and then recreated", *uid, pod.UID))
	}
	if version := p.ResourceVersion; version != nil && *version != "" && *version != pod.ResourceVersion {
		return apierrors.NewConflict(resource, pod.Name,
			fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
				"The object might have been modified", *version, pod.ResourceVersion))
	}
	return nil
}

// setPodCondition sets a condition of a pod, with the time of its last transition.
func setPodCondition(pod *corev1.Pod, condition corev1.PodCondition) {
	condition.LastTransitionTime = metav1.Now()
	for i, c := range pod.Status.Conditions {
		if c.Type != condition.Type {
			continue
		}
		if c.Status == condition.Status {
			condition.LastTransitionTime = c.LastTransitionTime
		}
		pod.Status.Conditions[i] = condition
		return
	}
	pod.Status.Conditions = append(pod.Status.Conditions, condition)
}
