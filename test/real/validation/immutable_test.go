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

// Both servers refuse the same changes of immutable fields, with the same causes, and accept the same others.
func TestImmutableFields(t *testing.T) {
	both := sides(t)
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
