// Package limitranges applies LimitRanges, as kube-apiserver's admission plugin LimitRanger does: it sets the default
// requests and limits of containers in new pods, and refuses pods and PersistentVolumeClaims outside of the bounds.
//
//	limitranger.go   the admission plugin
//	defaults.go      the defaults of containers
//	bounds.go        the bounds of containers, pods and claims
package limitranges

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/lru"
)

// PluginName is the name of the plugin, as in kube-apiserver's flag --enable-admission-plugins.
const PluginName = "LimitRanger"

const (
	// absenceTime is how long a namespace that was read without a LimitRange isn't read again. The informer delivers
	// those that are created in this time.
	absenceTime = 30 * time.Second
	// absenceEntries bounds the namespaces whose absence is remembered.
	absenceEntries = 10000
)

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &limitRanger{Handler: admission.NewHandler(admission.Create, admission.Update),
			absent: lru.New(absenceEntries)}, nil
	})
}

type limitRanger struct {
	*admission.Handler
	client kubernetes.Interface
	lister listers.LimitRangeLister
	absent *lru.Cache // by namespace: the end of absenceTime
}

var (
	_ admission.MutationInterface                  = (*limitRanger)(nil)
	_ admission.ValidationInterface                = (*limitRanger)(nil)
	_ initializer.WantsExternalKubeInformerFactory = (*limitRanger)(nil)
	_ initializer.WantsExternalKubeClientSet       = (*limitRanger)(nil)
)

func (l *limitRanger) SetExternalKubeInformerFactory(factory informers.SharedInformerFactory) {
	ranges := factory.Core().V1().LimitRanges()
	l.SetReadyFunc(ranges.Informer().HasSynced)
	l.lister = ranges.Lister()
}

func (l *limitRanger) SetExternalKubeClientSet(client kubernetes.Interface) { l.client = client }

func (l *limitRanger) ValidateInitialization() error {
	if l.lister == nil || l.client == nil {
		return errors.New("the plugin has no client")
	}
	return nil
}

// Admit sets the defaults of a new pod.
func (l *limitRanger) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !limited(a) {
		return nil
	}
	ranges, err := l.rangesOf(ctx, a)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		setDefaults(pod, r.Spec.Limits)
	}
	return nil
}

// Validate returns 403 Forbidden for an object outside of the bounds of its namespace.
func (l *limitRanger) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !limited(a) {
		return nil
	}
	ranges, err := l.rangesOf(ctx, a)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		var err error
		switch object := a.GetObject().(type) {
		case *corev1.Pod:
			err = checkPod(object, r.Spec.Limits)
		case *corev1.PersistentVolumeClaim:
			err = checkClaim(object, r.Spec.Limits)
		}
		if err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

// limited reports whether limits apply to a write: to creates of pods, whose resources don't change in updates, and to
// writes of claims that aren't being deleted.
func limited(a admission.Attributes) bool {
	if a.GetSubresource() != "" {
		return false
	}
	switch a.GetResource().GroupResource() {
	case corev1.Resource("pods"):
		return a.GetOperation() == admission.Create
	case corev1.Resource("persistentvolumeclaims"):
		old, ok := a.GetOldObject().(metav1.Object)
		return !ok || old.GetDeletionTimestamp() == nil
	}
	return false
}

// rangesOf returns the LimitRanges of a write's namespace. If the informer has none, one request makes sure that there
// are none.
func (l *limitRanger) rangesOf(ctx context.Context, a admission.Attributes) ([]*corev1.LimitRange, error) {
	if !l.WaitForReady() {
		return nil, admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	ranges, err := l.lister.LimitRanges(a.GetNamespace()).List(labels.Everything())
	if err != nil {
		return nil, admission.NewForbidden(a,
			fmt.Errorf("unable to %s %v at this time because there was an error enforcing limit ranges", a.GetOperation(),
				a.GetResource()))
	}
	if len(ranges) > 0 {
		return ranges, nil
	}
	if end, ok := l.absent.Get(a.GetNamespace()); ok && time.Now().Before(end.(time.Time)) {
		return nil, nil
	}
	live, err := l.client.CoreV1().LimitRanges(a.GetNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, admission.NewForbidden(a, err)
	}
	if len(live.Items) == 0 {
		l.absent.Add(a.GetNamespace(), time.Now().Add(absenceTime))
	}
	for i := range live.Items {
		ranges = append(ranges, &live.Items[i])
	}
	return ranges, nil
}
