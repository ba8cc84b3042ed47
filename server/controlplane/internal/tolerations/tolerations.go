// Package tolerations lets pods tolerate nodes that are not ready or unreachable for five minutes, as kube-apiserver's
// admission plugin DefaultTolerationSeconds does.
//
//	tolerations.go   the admission plugin
package tolerations

import (
	"context"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// PluginName is the name of the plugin, as in kube-apiserver's flag --enable-admission-plugins.
const PluginName = "DefaultTolerationSeconds"

// seconds is kube-apiserver's default of its flags --default-not-ready-toleration-seconds and
// --default-unreachable-toleration-seconds.
const seconds = 300

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return plugin{admission.NewHandler(admission.Create, admission.Update)}, nil
	})
}

type plugin struct{ *admission.Handler }

var _ admission.MutationInterface = plugin{}

// Admit adds the tolerations that a pod lacks.
func (plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	given := pod.Spec.Tolerations
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerates := func(t corev1.Toleration) bool {
			return (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		}
		if !slices.ContainsFunc(given, tolerates) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: new(int64(seconds)),
			})
		}
	}
	return nil
}
