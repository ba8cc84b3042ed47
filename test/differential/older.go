package differential

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// older are objects as older versions of kube-apiserver stored them: in versions that are not served any
// more, without fields that have defaults now, with unknown fields. The keys are below /registry/;
// META is the object's metadata without braces.
var older = map[string]string{
	"deployments/one/older":              `{"kind":"Deployment","apiVersion":"apps/v1beta1","metadata":{META},"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
	"replicasets/one/older":              `{"kind":"ReplicaSet","apiVersion":"apps/v1beta2","metadata":{META},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}},"status":{"replicas":2}}`,
	"statefulsets/two/older":             `{"kind":"StatefulSet","apiVersion":"apps/v1beta2","metadata":{META},"spec":{"selector":{"matchLabels":{"a":"b"}},"serviceName":"s","template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}},"volumeClaimTemplates":[{"metadata":{"name":"d"},"spec":{"accessModes":["ReadWriteOnce"]}}]},"status":{"replicas":0}}`,
	"horizontalpodautoscalers/one/older": `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{META},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"older","apiVersion":"apps/v1"},"maxReplicas":3,"targetCPUUtilizationPercentage":80},"status":{"currentReplicas":1,"desiredReplicas":2}}`,
	"cronjobs/one/older":                 `{"kind":"CronJob","apiVersion":"batch/v1beta1","metadata":{META},"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`,
	"jobs/one/older":                     `{"kind":"Job","apiVersion":"batch/v1","metadata":{META},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}},"status":{"succeeded":1}}`,
	"ingress/one/older":                  `{"kind":"Ingress","apiVersion":"networking.k8s.io/v1beta1","metadata":{META},"spec":{"backend":{"serviceName":"s","servicePort":80}}}`,
	"ingress/two/older":                  `{"kind":"Ingress","apiVersion":"extensions/v1beta1","metadata":{META},"spec":{"rules":[{"host":"h","http":{"paths":[{"path":"/","backend":{"serviceName":"s","servicePort":"http"}}]}}]}}`,
	"poddisruptionbudgets/one/older":     `{"kind":"PodDisruptionBudget","apiVersion":"policy/v1beta1","metadata":{META},"spec":{"minAvailable":1,"selector":{}}}`,
	"roles/one/older":                    `{"kind":"Role","apiVersion":"rbac.authorization.k8s.io/v1beta1","metadata":{META},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`,
	"leases/one/older":                   `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1beta1","metadata":{META},"spec":{"holderIdentity":"h","renewTime":"2020-01-02T03:04:05.000006Z"}}`,
	"csidrivers/older":                   `{"kind":"CSIDriver","apiVersion":"storage.k8s.io/v1beta1","metadata":{META},"spec":{}}`,
	"storageclasses/older":               `{"kind":"StorageClass","apiVersion":"storage.k8s.io/v1beta1","metadata":{META},"provisioner":"p"}`,
	"flowschemas/older":                  `{"kind":"FlowSchema","apiVersion":"flowcontrol.apiserver.k8s.io/v1beta3","metadata":{META},"spec":{"priorityLevelConfiguration":{"name":"none"}}}`,
	"endpointslices/one/older":           `{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1beta1","metadata":{META},"addressType":"IPv4","endpoints":[{"addresses":["10.1.2.3"],"topology":{"kubernetes.io/hostname":"n","topology.kubernetes.io/zone":"z"}}],"ports":[{"port":80}]}`,
	"events/one/older":                   `{"kind":"Event","apiVersion":"events.k8s.io/v1beta1","metadata":{META},"eventTime":null,"note":"n","reason":"r","regarding":{"kind":"Pod","namespace":"one","name":"p"},"deprecatedCount":3,"deprecatedFirstTimestamp":"2020-01-02T03:04:05Z","deprecatedLastTimestamp":"2020-01-02T03:04:06Z"}`,
	"pods/one/older":                     `{"kind":"Pod","apiVersion":"v1","metadata":{META},"spec":{"serviceAccount":"sa","containers":[{"name":"c","image":"i:latest","ports":[{"containerPort":80}],"livenessProbe":{"httpGet":{"port":"x"}},"unknown":1}],"volumes":[{"name":"v"},{"name":"s","secret":{"secretName":"x"}}],"unknown":{"a":1}},"status":{"podIP":"10.0.0.7","unknown":[]}}`,
	"pods/two/older":                     `{"kind":"Pod","apiVersion":"v1","metadata":{META,"generateName":"","selfLink":"/api/v1/namespaces/two/pods/older","clusterName":"c"},"spec":{"containers":null},"status":{}}`,
	"services/specs/one/older":           `{"kind":"Service","apiVersion":"v1","metadata":{META},"spec":{"clusterIP":"10.0.9.9","ports":[{"port":80}]}}`,
	"services/specs/two/older":           `{"kind":"Service","apiVersion":"v1","metadata":{META},"spec":{"clusterIP":"None","type":"ClusterIP","selector":{"a":"b"}}}`,
	"services/endpoints/one/older":       `{"kind":"Endpoints","apiVersion":"v1","metadata":{META},"subsets":[{"addresses":[{"ip":"10.1.2.3"}],"ports":[{"port":80}]}]}`,
	"persistentvolumeclaims/one/older":   `{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{META},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1024Mi"}},"dataSource":{"kind":"PersistentVolumeClaim","name":"a"}}}`,
	"persistentvolumes/older":            `{"kind":"PersistentVolume","apiVersion":"v1","metadata":{META},"spec":{"capacity":{"storage":"1000Ki"},"hostPath":{"path":"/x"}}}`,
	"minions/older":                      `{"kind":"Node","apiVersion":"v1","metadata":{META},"spec":{"podCIDR":"10.9.0.0/24","externalID":"x"},"status":{"capacity":{"cpu":"4000m","memory":"1073741824"}}}`,
	"secrets/one/older":                  `{"kind":"Secret","apiVersion":"v1","metadata":{META},"data":{"a":"YQ==","n":null}}`,
	"configmaps/one/older":               `{"kind":"ConfigMap","apiVersion":"v1","metadata":{META},"data":null}`,
	"namespaces/older":                   `{"kind":"Namespace","apiVersion":"v1","metadata":{META},"spec":{},"status":{}}`,
	"limitranges/one/older":              `{"kind":"LimitRange","apiVersion":"v1","metadata":{META},"spec":{"limits":[{"type":"Container","max":{"cpu":"0.5"}}]}}`,
	group + "/widgets/one/older": `{"kind":"Widget","apiVersion":"` + group +
		`/v1beta1","metadata":{META},"spec":{"color":"red","size":7,"unknown":"x"}}`,
}

// putOlder stores the objects of older versions in etcd, and so changes those that exist.
func (w *World) putOlder(ctx context.Context) error {
	for i, key := range slices.Sorted(maps.Keys(older)) {
		name := strings.Split(key, "/")
		meta := fmt.Sprintf(
			`"name":"older","uid":"00000000-0000-0000-0000-%012d","creationTimestamp":"2019-01-02T03:04:05Z","labels":{"color":%q},"annotations":{"written":"%d"}`,
			i, colors[w.random.IntN(len(colors))], w.random.Uint32())
		if namespace := name[len(name)-2]; namespace == "one" || namespace == "two" {
			meta += fmt.Sprintf(`,"namespace":%q`, namespace)
		}
		put, err := w.etcd.Put(ctx, "/registry/"+key, strings.Replace(older[key], "META", meta, 1))
		if err != nil {
			return err
		}
		w.past = append(w.past, put.Header.Revision)
	}
	return nil
}
