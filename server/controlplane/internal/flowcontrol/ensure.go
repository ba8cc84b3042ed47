package flowcontrol

import (
	"context"
	"maps"
	"strconv"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

// period is the time between two repetitions of Ensure, as in kube-apiserver.
const period = time.Minute

// Objects is the storage of one kind. Update and Delete fail if the object was changed or replaced after it was read.
type Objects[T any] interface {
	List(context.Context) ([]T, error)
	Create(context.Context, T) error
	Update(context.Context, T) error
	Delete(context.Context, string, types.UID) error
}

// Storage has the objects of both kinds.
type Storage struct {
	Schemas Objects[*flowcontrolv1.FlowSchema]
	Levels  Objects[*flowcontrolv1.PriorityLevelConfiguration]
}

// Run repeats Ensure every minute until ctx is done.
func (s Storage) Run(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := s.Ensure(ctx); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Restoring of flow schemas and priority levels is retried")
		}
	}
}

// Ensure creates the objects that do not exist. It restores the spec of mandatory ones, and of suggested ones that
// nobody has changed, or whose annotation asks for it; and deletes former suggestions with that annotation.
func (s Storage) Ensure(ctx context.Context) error {
	levels := resource[*flowcontrolv1.PriorityLevelConfiguration]{
		s.Levels, bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations,
		restoreLevel}
	if err := levels.ensure(ctx); err != nil {
		return err
	}
	schemas := resource[*flowcontrolv1.FlowSchema]{s.Schemas, bootstrap.MandatoryFlowSchemas,
		bootstrap.SuggestedFlowSchemas, restoreSchema}
	return schemas.ensure(ctx)
}

// restoreLevel copies the spec of a level, and reports whether it differed. Users may change the numbers of an exempt
// one.
func restoreLevel(is, want *flowcontrolv1.PriorityLevelConfiguration) bool {
	spec := is.Spec
	if want.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt && spec.Exempt != nil {
		spec.Exempt = want.Spec.Exempt
	}
	if equality.Semantic.DeepEqual(spec, want.Spec) {
		return false
	}
	is.Spec = *want.Spec.DeepCopy()
	return true
}

// restoreSchema copies the spec of a schema, and reports whether it differed.
func restoreSchema(is, want *flowcontrolv1.FlowSchema) bool {
	if equality.Semantic.DeepEqual(is.Spec, want.Spec) {
		return false
	}
	is.Spec = *want.Spec.DeepCopy()
	return true
}

// resource has the storage of one kind, the objects that should exist, and a function that restores a spec.
type resource[T metav1.Object] struct {
	objects              Objects[T]
	mandatory, suggested []T
	restore              func(is, want T) bool
}

func (r resource[T]) ensure(ctx context.Context) error {
	list, err := r.objects.List(ctx)
	if err != nil {
		return err
	}
	have := map[string]T{}
	for _, o := range list {
		have[o.GetName()] = o
	}
	for i, wanted := range [][]T{r.mandatory, r.suggested} {
		for _, want := range wanted {
			is, ok := have[want.GetName()]
			delete(have, want.GetName())
			var err error
			if !ok {
				err = r.objects.Create(ctx, want)
			} else if r.revise(is, want, i == 0) {
				err = r.objects.Update(ctx, is)
			}
			if unlessChanged(err) != nil {
				return err
			}
		}
	}
	for name, o := range have {
		if automatic, err := strconv.ParseBool(o.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]); err != nil ||
			!automatic {
			continue
		}
		if err := unlessChanged(r.objects.Delete(ctx, name, o.GetUID())); err != nil {
			return err
		}
	}
	return nil
}

// revise gives an object the spec and the annotation that it should have, and reports whether it lacked one of them.
func (r resource[T]) revise(is, want T, mandatory bool) bool {
	automatic, err := strconv.ParseBool(is.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
	annotated := err == nil
	restores := mandatory || annotated && automatic || !annotated && is.GetGeneration() == 1
	changed := restores && r.restore(is, want)
	if !annotated || automatic != restores {
		annotations := map[string]string{}
		maps.Copy(annotations, is.GetAnnotations())
		annotations[flowcontrolv1.AutoUpdateAnnotationKey] = strconv.FormatBool(restores)
		is.SetAnnotations(annotations)
		changed = true
	}
	return changed
}

// unlessChanged returns nil for the errors of a write that another write has preceded. The next Ensure looks again.
func unlessChanged(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
