package validation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

const (
	podTemplate = `template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}`
	selected    = `selector: {matchLabels: {a: b}}, ` + podTemplate
	jobTemplate = `template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}`
	claimed     = `spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`
	volume      = `spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /a}}`
)

// immutable are objects, and merge patches of them. allowed are those that kube-apiserver accepts.
var immutable = []struct {
	kind, object, patch string
	allowed             bool
}{
	{"PriorityClass", `{value: 7}`, `{value: 8}`, false},
	{"PriorityClass", `{value: 7}`, `{preemptionPolicy: Never}`, false},
	{"PriorityClass", `{value: 7}`, `{description: x}`, true},
	{"Secret", `{immutable: true, stringData: {k: v}}`, `{stringData: {k: w}}`, false},
	{"Secret", `{immutable: true}`, `{immutable: false}`, false},
	{"Secret", `{immutable: true}`, `{metadata: {labels: {a: b}}}`, true},
	{"Secret", `{}`, `{type: example.com/x}`, false},
	{"ConfigMap", `{immutable: true}`, `{binaryData: {k: dw==}}`, false},
	{"ConfigMap", `{immutable: true, data: {a: b}}`, `{data: {a: c}}`, false},
	{"ConfigMap", `{data: {a: b}}`, `{immutable: true}`, true},
	{"Service", `{spec: {clusterIP: None, ports: [{port: 80}]}}`, `{spec: {ports: [{port: 81}]}}`, true},
	{"PersistentVolume", `{` + volume + `}`, `{spec: {hostPath: {path: /b}}}`, false},
	{"PersistentVolume", `{` + volume + `}`, `{spec: {persistentVolumeReclaimPolicy: Delete}}`, true},
	{"PersistentVolumeClaim", `{` + claimed + `}`, `{spec: {accessModes: [ReadOnlyMany]}}`, false},
	{"PersistentVolumeClaim", `{` + claimed + `}`, `{spec: {storageClassName: x}}`, true},
	{"Deployment", `{spec: {` + selected + `}}`, `{spec: {selector: {matchLabels: {a: c}}}}`, false},
	{"Deployment", `{spec: {` + selected + `}}`, `{spec: {replicas: 3}}`, true},
	{"ReplicaSet", `{spec: {` + selected + `}}`,
		`{spec: {selector: {matchLabels: {a: c}}, template: {metadata: {labels: {a: c}}}}}`, false},
	{"ReplicaSet", `{spec: {` + selected + `}}`, `{spec: {replicas: 3}}`, true},
	{"DaemonSet", `{spec: {` + selected + `}}`,
		`{spec: {selector: {matchLabels: {a: c}}, template: {metadata: {labels: {a: c}}}}}`, false},
	{"DaemonSet", `{spec: {` + selected + `}}`, `{spec: {minReadySeconds: 3}}`, true},
	{"StatefulSet", `{spec: {serviceName: s, ` + selected + `}}`, `{spec: {serviceName: t}}`, false},
	{"StatefulSet", `{spec: {serviceName: s, ` + selected + `}}`, `{spec: {podManagementPolicy: Parallel}}`, false},
	{"StatefulSet", `{spec: {serviceName: s, ` + selected + `}}`, `{spec: {replicas: 3}}`, true},
	{"Job", `{spec: {` + jobTemplate + `}}`, `{spec: {completionMode: Indexed}}`, false},
	{"Job", `{spec: {` + jobTemplate + `}}`, `{spec: {template: {spec: {nodeName: n}}}}`, false},
	{"Job", `{spec: {` + jobTemplate + `}}`, `{spec: {parallelism: 3}}`, true},
	{"Job", `{spec: {` + jobTemplate + `}}`, `{spec: {suspend: true}}`, true},
	{"RoleBinding", `{roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: a}}`, `{roleRef: {name: b}}`,
		false},
	{"RoleBinding", `{roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: a}}`,
		`{subjects: [{kind: User, name: u}]}`, true},
	{"ClusterRoleBinding", `{roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: a}}`,
		`{roleRef: {name: b}}`, false},
	{"StorageClass", `{provisioner: example.com/p}`, `{parameters: {a: b}}`, false},
	{"StorageClass", `{provisioner: example.com/p}`, `{provisioner: example.com/q}`, false},
	{"StorageClass", `{provisioner: example.com/p}`, `{allowVolumeExpansion: true}`, true},
	{"RuntimeClass", `{handler: a}`, `{handler: b}`, false},
	{"EndpointSlice", `{addressType: IPv4, endpoints: []}`, `{addressType: IPv6}`, false},
	{"Deployment", `{spec: {` + selected + `}}`, `{metadata: {uid: another}}`, false},
	{"ConfigMap", `{}`, `{metadata: {name: another}}`, false},
	{"ConfigMap", `{}`, `{metadata: {namespace: another}}`, false},
	{"ConfigMap", `{}`, `{kind: Secret}`, false},
}

const (
	resized   = `spec: {accessModes: [ReadWriteOnce], storageClassName: grows, resources: {requests: {storage: 2Gi}}}`
	bound     = `{status: {phase: Bound, capacity: {storage: 1Gi}}}`
	classed   = `spec: {accessModes: [ReadWriteOnce], volumeAttributesClassName: gold, resources: {requests: {storage: 1Gi}}}`
	annotated = `metadata: {annotations: {volume.beta.kubernetes.io/storage-class: a}}, ` + claimed
	csi       = `accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, csi: {driver: d.example.com, volumeHandle: h`
	inZone    = `{spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /a}, nodeAffinity: ` +
		`{required: {nodeSelectorTerms: [{matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, ` +
		`operator: In, values: [a]}]}]}}}}`
	suspended = `{spec: {suspend: true, ` + jobTemplate + `}}`
	indexed   = `{spec: {completionMode: Indexed, completions: 3, parallelism: 1, ` + jobTemplate + `}}`
	gated     = `containers: [{name: c, image: i}], schedulingGates: [{name: a.b/c}], nodeSelector: {a: b}`
	affine    = `{spec: {` + gated + `, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: ` +
		`{nodeSelectorTerms: [{matchExpressions: [{key: k, operator: Exists}]}]}}}}}`
)

// required returns a patch of the terms that a node must match.
func required(terms string) string {
	return `{spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [` +
		terms + `]}}}}}`
}

// conditional are fields that are immutable under a condition: merge patches of objects with a status.
var conditional = []struct {
	kind, object, status, patch string
	allowed                     bool
}{
	{"PersistentVolumeClaim", `{` + claimed + `}`, "", `{spec: {resources: {requests: {storage: 2Gi}}}}`, false},
	{"PersistentVolumeClaim", `{` + claimed + `}`, "", `{spec: {volumeAttributesClassName: gold}}`, false},
	{"PersistentVolumeClaim", `{` + claimed + `}`, "", `{spec: {volumeMode: Block}}`, false},
	{"PersistentVolumeClaim", `{` + claimed + `}`, "", `{spec: {volumeName: v}}`, true},
	{"PersistentVolumeClaim", `{` + claimed + `}`, bound, `{spec: {volumeAttributesClassName: gold}}`, true},
	{"PersistentVolumeClaim", `{` + resized + `}`, bound, `{spec: {resources: {requests: {storage: 3Gi}}}}`, true},
	{"PersistentVolumeClaim", `{` + resized + `}`, bound, `{spec: {resources: {requests: {storage: 1536Mi}}}}`, true},
	{"PersistentVolumeClaim", `{` + resized + `}`, bound, `{spec: {resources: {requests: {storage: 1Gi}}}}`, false},
	{"PersistentVolumeClaim", `{` + resized + `}`, bound, `{spec: {resources: {requests: {example.com/a: 1}}}}`, false},
	{"PersistentVolumeClaim", `{` + resized + `}`, bound, `{spec: {resources: {limits: {storage: 5Gi}}}}`, false},
	{"PersistentVolumeClaim", `{` + classed + `}`, bound, `{spec: {volumeAttributesClassName: null}}`, true},
	{"PersistentVolumeClaim", `{` + classed + `}`, `{status: {phase: Bound, currentVolumeAttributesClassName: gold}}`,
		`{spec: {volumeAttributesClassName: silver}}`, true},
	{"PersistentVolumeClaim", `{` + classed + `}`, `{status: {phase: Bound, currentVolumeAttributesClassName: gold}}`,
		`{spec: {volumeAttributesClassName: null}}`, false},
	{"PersistentVolumeClaim", `{` + classed + `}`, `{status: {phase: Bound, currentVolumeAttributesClassName: gold}}`,
		`{spec: {volumeAttributesClassName: ""}}`, false},
	{"PersistentVolumeClaim", `{` + annotated + `}`, "",
		`{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: b}}}`, false},
	{"PersistentVolumeClaim", `{` + annotated + `}`, "", `{metadata: {annotations: null}}`, false},
	{"PersistentVolumeClaim", `{` + annotated + `}`, "", `{metadata: {annotations: null}, spec: {storageClassName: a}}`,
		true},
	{"PersistentVolumeClaim", `{` + annotated + `}`, "", `{spec: {storageClassName: a}}`, true},
	{"PersistentVolumeClaim", `{` + annotated + `}`, "", `{spec: {storageClassName: b}}`, false},
	{"PersistentVolumeClaim", `{` + annotated + `}`, "",
		`{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: b}}, spec: {storageClassName: b}}`, false},

	{"PersistentVolume", `{` + volume + `}`, "", `{spec: {volumeMode: Block}}`, false},
	{"PersistentVolume", `{spec: {` + csi + `}}}`, "",
		`{spec: {csi: {controllerExpandSecretRef: {name: a, namespace: b}}}}`, true},
	{"PersistentVolume", `{spec: {` + csi + `}}}`, "",
		`{spec: {csi: {fsType: ext4, controllerExpandSecretRef: {name: a, namespace: b}}}}`, false},
	{"PersistentVolume", `{spec: {` + csi + `, controllerExpandSecretRef: {name: a, namespace: b}}}}`, "",
		`{spec: {csi: {controllerExpandSecretRef: {name: c}}}}`, false},
	{"PersistentVolume", `{spec: {` + csi + `}, volumeAttributesClassName: gold}}`, "",
		`{spec: {volumeAttributesClassName: silver}}`, true},
	{"PersistentVolume", `{spec: {` + csi + `}, volumeAttributesClassName: gold}}`, "",
		`{spec: {volumeAttributesClassName: null}}`, false},
	{"PersistentVolume", `{` + volume + `}`, "", `{spec: {nodeAffinity: {required: {nodeSelectorTerms: [` +
		`{matchExpressions: [{key: a, operator: Exists}]}]}}}}`, true},
	{"PersistentVolume", inZone, "", `{spec: {nodeAffinity: null}}`, false},
	{"PersistentVolume", inZone, "", `{spec: {nodeAffinity: {required: {nodeSelectorTerms: [` +
		`{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [a]}]}]}}}}`, true},
	{"PersistentVolume", inZone, "", `{spec: {nodeAffinity: {required: {nodeSelectorTerms: [` +
		`{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [b]}]}]}}}}`, false},
	{"PersistentVolume", inZone, "", `{spec: {nodeAffinity: {required: {nodeSelectorTerms: [` +
		`{matchExpressions: [{key: topology.kubernetes.io/region, operator: In, values: [a]}]}]}}}}`, false},

	{"CSIDriver", `{spec: {attachRequired: true}}`, "", `{spec: {attachRequired: false}}`, false},
	{"CSIDriver", `{spec: {attachRequired: true}}`, "", `{spec: {requiresRepublish: true}}`, true},

	{"Job", suspended, "", `{spec: {template: {spec: {containers: [{name: c, image: other}]}}}}`, false},
	{"Job", suspended, "", `{spec: {template: {spec: {schedulerName: other}}}}`, false},
	{"Job", suspended, "", `{spec: {template: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: ` +
		`{nodeSelector: {a: b}, tolerations: [{operator: Exists}], schedulingGates: [{name: a.b/c}]}}}}`, true},
	{"Job", suspended, "", `{spec: {suspend: false, template: {spec: {nodeSelector: {a: b}}}}}`, true},
	{"Job", suspended, "", `{spec: {template: {spec: {affinity: {nodeAffinity: ` +
		`{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: ` +
		`[{key: k, operator: Exists}]}]}}}}}}}`, true},
	{"Job", suspended, "", `{spec: {template: {spec: {affinity: {podAffinity: ` +
		`{requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: k}]}}}}}}`, false},
	{"Job", suspended, "",
		`{spec: {template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}}`, true},
	{"Job", suspended, "", `{spec: {template: {spec: {containers: [{name: c, image: i}, {name: d, image: i}]}}}}`, false},
	{"Job", suspended, `{status: {active: 1}}`, `{spec: {template: {spec: {nodeSelector: {a: b}}}}}`, false},
	{"Job", suspended, `{status: {startTime: "2026-01-01T00:00:00Z"}}`, `{spec: {template: {spec: {nodeSelector: {a: b}}}}}`,
		false},
	{"Job", suspended, `{status: {startTime: "2026-01-01T00:00:00Z", conditions: [{type: Suspended, status: "True"}]}}`,
		`{spec: {template: {spec: {nodeSelector: {a: b}}}}}`, true},
	{"Job", `{spec: {` + jobTemplate + `}}`, "", `{spec: {template: {metadata: {labels: {a: b}}}}}`, false},
	{"Job", `{spec: {` + jobTemplate + `}}`, "", `{spec: {completions: 5}}`, false},
	{"Job", indexed, "", `{spec: {completions: 5}}`, false},
	{"Job", indexed, "", `{spec: {completions: 5, parallelism: 5}}`, true},
	{"Job", indexed, "", `{spec: {parallelism: 2}}`, true},

	{"Pod", `{spec: {` + gated + `}}`, "", `{spec: {nodeSelector: {d: e}}}`, true},
	{"Pod", `{spec: {` + gated + `}}`, "", `{spec: {nodeSelector: {a: c}}}`, false},
	{"Pod", `{spec: {` + gated + `}}`, "", `{spec: {nodeSelector: {a: null}}}`, false},
	{"Pod", `{spec: {` + gated + `}}`, "", `{spec: {affinity: {}}}`, false},
	{"Pod", `{spec: {` + gated + `}}`, "", `{spec: {affinity: {podAntiAffinity: {}}}}`, false},
	{"Pod", `{spec: {` + gated + `}}`, "", required(`{matchExpressions: [{key: k, operator: Exists}]}`), true},
	{"Pod", affine, "", required(`{matchExpressions: [{key: k, operator: Exists}, {key: l, operator: Exists}]}`), true},
	{"Pod", affine, "",
		required(`{matchExpressions: [{key: k, operator: Exists}], matchFields: [{key: metadata.name, operator: In, values: [a]}]}`),
		true},
	{"Pod", affine, "", required(`{matchExpressions: [{key: l, operator: Exists}]}`), false},
	{"Pod", affine, "", required(`{matchExpressions: [{key: k, operator: DoesNotExist}]}`), false},
	{"Pod", affine, "",
		required(`{matchExpressions: [{key: k, operator: Exists}]}, {matchExpressions: [{key: l, operator: Exists}]}`), false},
	{"Pod", affine, "", `{spec: {affinity: null}}`, false},
	{"Pod", affine, "", `{spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: ` +
		`[{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}}}`, true},
	{"Pod", `{spec: {containers: [{name: c, image: i}], nodeSelector: {a: b}}}`, "", `{spec: {nodeSelector: {d: e}}}`,
		false},

	// Last: they hold for later pods.
	{"ResourceQuota", `{spec: {hard: {pods: 1000}, scopes: [BestEffort]}}`, "", `{spec: {scopes: [NotBestEffort]}}`, false},
	{"ResourceQuota", `{spec: {hard: {pods: 1000}, scopes: [BestEffort]}}`, "", `{spec: {scopes: null}}`, false},
	{"ResourceQuota", `{spec: {hard: {pods: 1000}, scopes: [BestEffort, Terminating]}}`, "",
		`{spec: {hard: {pods: 2000}, scopes: [Terminating, BestEffort]}}`, true},
}

// Both servers refuse the same changes of fields that are immutable under a condition, and accept the same others.
func TestConditionallyImmutableFields(t *testing.T) {
	both := latestSides(t)
	for _, side := range both {
		grows := object(t, "StorageClass", "grows", `{provisioner: example.com/p, allowVolumeExpansion: true}`)
		if _, err := client(side, "StorageClass").Create(t.Context(), grows, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range conditional {
		name := fmt.Sprintf("%s-conditional-%d", strings.ToLower(c.kind), i)
		patch, err := yaml.YAMLToJSON([]byte(c.patch))
		if err != nil {
			t.Fatal(err)
		}
		var answers []answer
		for _, side := range both {
			objects := client(side, c.kind)
			if _, err := objects.Create(t.Context(), object(t, c.kind, name, c.object), metav1.CreateOptions{}); err != nil {
				t.Fatalf("create %s %s: %v", c.kind, c.object, err)
			}
			if c.status != "" {
				status, err := yaml.YAMLToJSON([]byte(c.status))
				if err == nil {
					_, err = objects.Patch(t.Context(), name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
				}
				if err != nil {
					t.Fatalf("%s %s: %v", c.kind, c.status, err)
				}
			}
			_, err := objects.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
			answers = append(answers, answerOf(t, err))
		}
		if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
			t.Errorf("%s %s %s %s (- kube-apiserver, + testserver):\n%s", c.kind, c.object, c.status, c.patch, diff)
		}
		if allowed := answers[0].Code == 0; allowed != c.allowed {
			t.Errorf("%s %s %s %s: kube-apiserver answers %+v", c.kind, c.object, c.status, c.patch, answers[0])
		}
	}
}

// Both servers refuse the same changes of immutable fields, with the same causes, and accept the same others.
func TestImmutableFields(t *testing.T) {
	both := latestSides(t)
	for i, c := range immutable {
		name := fmt.Sprintf("%s-immutable-%d", strings.ToLower(c.kind), i)
		patch, err := yaml.YAMLToJSON([]byte(c.patch))
		if err != nil {
			t.Fatal(err)
		}
		var answers []answer
		for _, side := range both {
			objects := client(side, c.kind)
			if _, err := objects.Create(t.Context(), object(t, c.kind, name, c.object), metav1.CreateOptions{}); err != nil {
				t.Fatalf("create %s %s: %v", c.kind, c.object, err)
			}
			_, err := objects.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
			answers = append(answers, answerOf(t, err))
		}
		if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
			t.Errorf("%s %s %s (- kube-apiserver, + testserver):\n%s", c.kind, c.object, c.patch, diff)
		}
		if allowed := answers[0].Code == 0; allowed != c.allowed {
			t.Errorf("%s %s %s: kube-apiserver answers %+v", c.kind, c.object, c.patch, answers[0])
		}
	}
}
