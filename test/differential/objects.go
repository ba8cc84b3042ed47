package differential

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const group = "differential.example.com"

var (
	colors = []string{"red", "green", "blue"}
	phases = []string{"Pending", "Running", "Succeeded", "Failed"}

	podResource = resource{version: "v1", name: "pods", namespaced: true, names: 12,
		make: pod, change: changePod, defaults: true}
	configMapResource = resource{version: "v1", name: "configmaps", namespaced: true, names: 8,
		make: configMap, change: changeConfigMap}
	nodeResource      = resource{version: "v1", name: "nodes", names: 6, make: node, change: changeNode, defaults: true}
	namespaceResource = resource{version: "v1", name: "namespaces"}
	widgetResource    = resource{group: group, version: "v1", name: "widgets", namespaced: true, names: 10,
		make: widget, change: changeWidget}
	// olderWidgetResource is the same objects in a version that isn't stored.
	olderWidgetResource = resource{group: group, version: "v1beta1", name: "widgets", namespaced: true, names: 10}
	gadgetResource      = resource{group: group, version: "v1", name: "gadgets", names: 8, make: gadget,
		change: changeGadget}
)

// written are the resources whose objects change in every world. asked are the resources of
// requests, the busier ones more often.
var (
	written = []resource{podResource, configMapResource, nodeResource, widgetResource, gadgetResource}
	asked   = []resource{podResource, podResource, podResource, configMapResource, configMapResource, widgetResource,
		widgetResource,
		gadgetResource, nodeResource, namespaceResource, olderWidgetResource}
)

func (r resource) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.group, Version: r.version, Resource: r.name}
}

func metadata(singular, namespace string, i int) map[string]any {
	m := map[string]any{
		"name": objectName(singular, i),
		"labels": map[string]any{
			"color": colors[i%len(colors)], "index": fmt.Sprint(i), "app.kubernetes.io/part-of": "differential",
		},
		"annotations": map[string]any{"note": "<&> \u2028 \"quoted\" ünïcode"},
	}
	if namespace != "" {
		m["namespace"] = namespace
	}
	return m
}

func relabel(random *rand.Rand) patch {
	if random.IntN(4) == 0 {
		return patch{body: `{"metadata":{"labels":{"color":null,"extra":""}}}`}
	}
	return patch{body: fmt.Sprintf(`{"metadata":{"labels":{"color":"%s"}}}`, colors[random.IntN(len(colors))])}
}

func pod(namespace string, i int) map[string]any {
	container := func(name string, port int) map[string]any {
		return map[string]any{
			"name": name, "image": "example.com/" + name + ":1",
			"ports":     []any{map[string]any{"containerPort": int64(port + i)}},
			"resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "64Mi"}},
			"env":       []any{map[string]any{"name": "INDEX", "value": fmt.Sprint(i)}},
		}
	}
	spec := map[string]any{
		"containers":    []any{container("main", 8080), container("side", 9090)},
		"restartPolicy": []string{"Always", "Never"}[i%2],
	}
	if i%3 > 0 {
		spec["nodeName"] = objectName("node", i%6)
	}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata("pod", namespace, i), "spec": spec}
}

func changePod(random *rand.Rand) patch {
	ready := random.IntN(2) == 0
	return patch{
		body: fmt.Sprintf(
			`{"status":{"phase":%q,"podIP":"10.0.0.%d","conditions":[{"type":"Ready","status":%q,"lastTransitionTime":"2026-01-02T03:04:05Z"}],`+
				`"containerStatuses":[{"name":"main","image":"example.com/main:1","imageID":"x","ready":%t,"restartCount":%d,"state":{"running":{"startedAt":"2026-01-02T03:04:05Z"}}}]}}`,
			phases[random.IntN(len(phases))], random.IntN(250), map[bool]string{true: "True", false: "False"}[ready], ready,
			random.IntN(5)), subresource: "status"}
}

// configMap has so much data, in some, that a list of them is worth compressing.
func configMap(namespace string, i int) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("configmap", namespace, i),
		"data":       map[string]any{"key": "value", "empty": "", "long": strings.Repeat("0123456789 <abc> ", 1+i%4*400)},
		"binaryData": map[string]any{"bytes": "AAECAwQ="}, "immutable": i == 7}
}

func changeConfigMap(random *rand.Rand) patch {
	return patch{body: fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, random.Uint32())}
}

func node(_ string, i int) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": metadata("node", "", i),
		"spec": map[string]any{"unschedulable": i%2 == 0, "podCIDR": fmt.Sprintf("10.%d.0.0/16", i)}}
}

func changeNode(random *rand.Rand) patch {
	return patch{body: fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, random.IntN(2) == 0)}
}

func widget(namespace string, i int) map[string]any {
	return map[string]any{"apiVersion": group + "/v1", "kind": "Widget", "metadata": metadata("widget", namespace, i),
		"spec": map[string]any{"color": colors[i%len(colors)], "size": int64(i), "ready": i%2 == 0, "weight": 1.5 +
			float64(i),
			"tags": []any{"a", "b"}, "pruned": "not in the schema", "free": map[string]any{"z": int64(1), "a": nil, "m": "x"}}}
}

func changeWidget(random *rand.Rand) patch {
	return patch{body: fmt.Sprintf(`{"spec":{"color":%q,"size":%d,"ready":%t}}`, colors[random.IntN(len(colors))],
		random.IntN(10), random.IntN(2) == 0)}
}

func gadget(_ string, i int) map[string]any {
	return map[string]any{"apiVersion": group + "/v1", "kind": "Gadget", "metadata": metadata("gadget", "", i),
		"anything": map[string]any{"list": []any{int64(1), "two", 3.25, true, nil}, "index": int64(i)}}
}

func changeGadget(random *rand.Rand) patch {
	return patch{body: fmt.Sprintf(`{"anything":{"touched":%d}}`, random.Uint32())}
}
