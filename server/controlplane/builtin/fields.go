package builtin

import (
	"fmt"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
)

// attributes returns the labels and fields of an object for selectors.
func (k *kind) attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	m := accessor(obj)
	set := fields.Set{"metadata.name": m.GetName()}
	if k.namespaced {
		set["metadata.namespace"] = m.GetNamespace()
	}
	if k.fields != nil {
		maps.Copy(set, k.fields(obj))
	}
	return m.GetLabels(), set, nil
}

// match returns a selection predicate for the storage.
func (k *kind) match(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	p := storage.SelectionPredicate{Label: label, Field: field, GetAttrs: k.attributes}
	if k.indexed != "" {
		p.IndexFields = []string{k.indexed}
	}
	return p
}

// triggers and indexers return the indexes of the watch cache: by the kind's indexed field, and the further ones.
func (k *kind) triggers() storage.IndexerFuncs {
	if k.indexed == "" {
		return nil
	}
	return storage.IndexerFuncs{k.indexed: func(obj runtime.Object) string { return k.fields(obj)[k.indexed] }}
}

func (k *kind) indexers() *cache.Indexers {
	all := cache.Indexers{}
	maps.Copy(all, k.indexes)
	if k.indexed != "" {
		all[storage.FieldIndex(k.indexed)] = func(obj any) ([]string, error) {
			return []string{k.fields(obj.(runtime.Object))[k.indexed]}, nil
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &all
}

// checkLabel accepts the kind's own selectable fields.
func (k *kind) checkLabel(label, value string) (string, string, error) {
	if k.fields == nil {
		return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
	}
	_, known, err := k.attributes(k.newObject())
	if err != nil {
		return "", "", err
	}
	if !known.Has(label) {
		return "", "", fmt.Errorf("field label not supported: %s", label)
	}
	return label, value, nil
}

func namespaceFields(obj runtime.Object) fields.Set {
	ns := obj.(*corev1.Namespace)
	return fields.Set{"status.phase": string(ns.Status.Phase)}
}

func podFields(obj runtime.Object) fields.Set {
	pod := obj.(*corev1.Pod)
	var ip string
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return fields.Set{
		"spec.nodeName":            pod.Spec.NodeName,
		"spec.restartPolicy":       string(pod.Spec.RestartPolicy),
		"spec.schedulerName":       pod.Spec.SchedulerName,
		"spec.serviceAccountName":  pod.Spec.ServiceAccountName,
		"spec.hostNetwork":         strconv.FormatBool(pod.Spec.HostNetwork),
		"status.phase":             string(pod.Status.Phase),
		"status.podIP":             ip,
		"status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}

func serviceFields(obj runtime.Object) fields.Set {
	svc := obj.(*corev1.Service)
	return fields.Set{"spec.clusterIP": svc.Spec.ClusterIP, "spec.type": string(svc.Spec.Type)}
}

func secretFields(obj runtime.Object) fields.Set {
	return fields.Set{"type": string(obj.(*corev1.Secret).Type)}
}

func nodeFields(obj runtime.Object) fields.Set {
	return fields.Set{"spec.unschedulable": strconv.FormatBool(obj.(*corev1.Node).Spec.Unschedulable)}
}

func replicationControllerFields(obj runtime.Object) fields.Set {
	rc := obj.(*corev1.ReplicationController)
	return fields.Set{"status.replicas": strconv.Itoa(int(rc.Status.Replicas))}
}

func replicaSetFields(obj runtime.Object) fields.Set {
	rs := obj.(*appsv1.ReplicaSet)
	return fields.Set{"status.replicas": strconv.Itoa(int(rs.Status.Replicas))}
}

func jobFields(obj runtime.Object) fields.Set {
	return fields.Set{"status.successful": strconv.Itoa(int(obj.(*batchv1.Job).Status.Succeeded))}
}

func resourceSliceFields(obj runtime.Object) fields.Set {
	spec := obj.(*resourcev1.ResourceSlice).Spec
	var node string
	if spec.NodeName != nil {
		node = *spec.NodeName
	}
	return fields.Set{
		resourcev1.ResourceSliceSelectorNodeName: node,
		resourcev1.ResourceSliceSelectorDriver:   spec.Driver,
		resourcev1.ResourceSliceSelectorPoolName: spec.Pool.Name,
	}
}

func eventFields(obj runtime.Object) fields.Set {
	event := obj.(*corev1.Event)
	source := event.Source.Component
	if source == "" {
		source = event.ReportingController
	}
	return fields.Set{
		"involvedObject.kind":            event.InvolvedObject.Kind,
		"involvedObject.namespace":       event.InvolvedObject.Namespace,
		"involvedObject.name":            event.InvolvedObject.Name,
		"involvedObject.uid":             string(event.InvolvedObject.UID),
		"involvedObject.apiVersion":      event.InvolvedObject.APIVersion,
		"involvedObject.resourceVersion": event.InvolvedObject.ResourceVersion,
		"involvedObject.fieldPath":       event.InvolvedObject.FieldPath,
		"reason":                         event.Reason,
		"reportingComponent":             event.ReportingController,
		"source":                         source,
		"type":                           event.Type,
	}
}
