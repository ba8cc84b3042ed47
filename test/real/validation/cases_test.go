package validation

import "strings"

// cases are creates, and updates to change. causes counts the causes for which kube-apiserver refuses the last request;
// 0 means that it accepts.
var cases = []struct {
	kind, object, change string
	causes               int
}{
	{"ConfigMap", `{data: {a: b}, binaryData: {c: ZA==}}`, "", 0},
	{"ConfigMap", `{data: {a/b: c, "": d, "..": e}}`, "", 3},
	{"ConfigMap", `{data: {a: b}, binaryData: {a: ZA==, "c d": ZA==}}`, "", 2},
	{"ConfigMap", `{data: {a: "` + strings.Repeat("x", 1<<20+1) + `"}}`, "", 1},
	{"ConfigMap", `{data: {a: b}}`, `{data: {"a b": c}}`, 1},

	{"Secret", `{stringData: {a: b}}`, "", 0},
	{"Secret", `{stringData: {"a b": c}}`, "", 1},
	{"Secret", `{stringData: {a: b}}`, `{stringData: {"a b": c}}`, 1},
	{"Secret", `{type: kubernetes.io/tls, stringData: {tls.crt: "", tls.key: ""}}`, "", 0},
	{"Secret", `{type: kubernetes.io/tls}`, "", 2},
	{"Secret", `{type: kubernetes.io/tls, stringData: {tls.crt: a}}`, "", 1},
	{"Secret", `{type: kubernetes.io/basic-auth}`, "", 2},
	{"Secret", `{type: kubernetes.io/basic-auth, stringData: {username: a}}`, "", 0},
	{"Secret", `{type: kubernetes.io/ssh-auth, stringData: {ssh-privatekey: ""}}`, "", 1},
	{"Secret", `{type: kubernetes.io/dockercfg}`, "", 1},
	{"Secret", `{type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: "[]"}}`, "", 1},
	{"Secret", `{type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: "{}"}}`, "", 0},
	{"Secret", `{type: kubernetes.io/service-account-token}`, "", 1},
	{"Secret", `{type: example.com/own}`, "", 0},

	{"Service", `{spec: {ports: [{port: 80}]}}`, "", 0},
	{"Service", `{spec: {}}`, "", 1},
	{"Service", `{spec: {clusterIP: None}}`, "", 0},
	{"Service", `{spec: {clusterIP: None, selector: {a: b}}}`, `{spec: {selector: {a: c}}}`, 0},
	{"Service", `{spec: {ports: [{port: 80}]}}`, `{spec: {ports: []}}`, 1},
	{"Service", `{spec: {ports: [{port: 80}, {port: 81}]}}`, "", 2},
	{"Service", `{spec: {ports: [{name: a, port: 80}, {name: a, port: 81}]}}`, "", 1},
	{"Service", `{spec: {ports: [{name: a, port: 80}, {name: b, port: 80}]}}`, "", 1},
	{"Service", `{spec: {ports: [{name: a, port: 53, protocol: TCP}, {name: b, port: 53, protocol: UDP}]}}`, "", 0},
	{"Service", `{spec: {ports: [{name: A_b, port: 80, targetPort: http}]}}`, "", 1},
	{"Service", `{spec: {ports: [{port: 0, targetPort: 80}]}}`, "", 1},
	{"Service", `{spec: {ports: [{port: 70000}]}}`, "", 2},
	{"Service", `{spec: {ports: [{port: 80, targetPort: 1Two_}]}}`, "", 1},
	{"Service", `{spec: {ports: [{port: 80, protocol: HTTP}]}}`, "", 1},
	{"Service", `{spec: {ports: [{port: 80, appProtocol: "a b"}]}}`, "", 1},
	{"Service", `{spec: {ports: [{port: 80}], sessionAffinity: Always}}`, "", 1},
	{"Service", `{spec: {ports: [{port: 80}], internalTrafficPolicy: Always}}`, "", 1},
	{"Service", `{spec: {ports: [{port: 80}], selector: {"a b": c}}}`, "", 1},
	{"Service", `{spec: {type: ExternalName, externalName: example.com.}}`, "", 0},
	{"Service", `{spec: {type: ExternalName}}`, "", 1},
	{"Service", `{spec: {type: ExternalName, externalName: a_b}}`, "", 1},

	{"PodDisruptionBudget", `{spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}}`, "", 0},
	{"PodDisruptionBudget", `{spec: {minAvailable: 100%, unhealthyPodEvictionPolicy: AlwaysAllow}}`, "", 0},
	{"PodDisruptionBudget", `{spec: {}}`, "", 0},
	{"PodDisruptionBudget", `{spec: {minAvailable: 1, maxUnavailable: 1}}`, "", 1},
	{"PodDisruptionBudget", `{spec: {minAvailable: -1}}`, "", 1},
	{"PodDisruptionBudget", `{spec: {maxUnavailable: 101%}}`, "", 1},
	{"PodDisruptionBudget", `{spec: {maxUnavailable: half}}`, "", 1},
	{"PodDisruptionBudget", `{spec: {unhealthyPodEvictionPolicy: Never}}`, "", 1},
	{"PodDisruptionBudget", `{spec: {selector: {matchExpressions: [{key: a, operator: In}]}}}`, "", 1},
	{"PodDisruptionBudget", `{spec: {minAvailable: 1}}`, `{spec: {minAvailable: 1, maxUnavailable: 1}}`, 1},

	{"Role", `{rules: [{verbs: [get], apiGroups: [""], resources: [pods]}]}`, "", 0},
	{"Role", `{rules: [{}]}`, "", 3},
	{"Role", `{rules: [{verbs: [get], nonResourceURLs: [/a]}]}`, "", 1},
	{"Role", `{rules: [{verbs: [get], apiGroups: [""], resources: [pods]}]}`, `{rules: [{apiGroups: [""], resources: [pods]}]}`, 1},
	{"ClusterRole", `{rules: [{verbs: [get], nonResourceURLs: [/a]}]}`, "", 0},
	{"ClusterRole", `{rules: [{verbs: [get], nonResourceURLs: [/a], resources: [pods]}]}`, "", 1},
	{"ClusterRole", `{aggregationRule: {}}`, "", 1},
	{"ClusterRole", `{aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}}`, "", 0},
	{"RoleBinding", `{roleRef: {kind: Role, name: a}, subjects: [{kind: User, name: a}, {kind: ServiceAccount, name: a, namespace: b}]}`, "", 0},
	{"RoleBinding", `{roleRef: {kind: User, name: a, apiGroup: b}}`, "", 2},
	{"RoleBinding", `{roleRef: {kind: Role, name: a/b}}`, "", 1},
	{"RoleBinding", `{roleRef: {kind: Role, name: a}, subjects: [{kind: Robot, name: a}, {kind: Group, name: a, apiGroup: b}, {kind: ServiceAccount, name: a_b}]}`, "", 3},
	{"ClusterRoleBinding", `{roleRef: {kind: Role, name: a}}`, "", 1},
	{"ClusterRoleBinding", `{roleRef: {kind: ClusterRole, name: a}, subjects: [{kind: ServiceAccount, name: a}]}`, "", 1},
}
