package objectjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// BenchmarkPod encodes one pod by Append and by the libraries that can write the same bytes.
func BenchmarkPod(b *testing.B) {
	serializer := kubejson.NewSerializerWithOptions(kubejson.DefaultMetaFactory, nil, nil, kubejson.SerializerOptions{})
	p := pod()
	want, err := json.Marshal(p)
	if err != nil {
		b.Fatal(err)
	}
	for _, by := range []struct {
		name   string
		encode func(w *bytes.Buffer) error
	}{
		{"append", func(w *bytes.Buffer) error {
			encoded, ok := Append(w.AvailableBuffer(), p)
			if !ok {
				return io.ErrUnexpectedEOF
			}
			w.Write(encoded)
			return nil
		}},
		{"machinery", func(w *bytes.Buffer) error { return serializer.Encode(p, w) }},
		{"encoding-json", func(w *bytes.Buffer) error { return json.NewEncoder(w).Encode(p) }},
		{"json-experiment", func(w *bytes.Buffer) error { return jsonv2.MarshalWrite(w, p, jsonv1.DefaultOptionsV1()) }},
	} {
		b.Run("by="+by.name, func(b *testing.B) {
			var w bytes.Buffer
			b.ReportAllocs()
			for b.Loop() {
				w.Reset()
				if err := by.encode(&w); err != nil {
					b.Fatal(err)
				}
			}
			if got := bytes.TrimSuffix(w.Bytes(), []byte("\n")); !bytes.Equal(got, want) {
				b.Errorf("%s, encoding/json %s", got, want)
			}
		})
	}
}

// BenchmarkMessage encodes the message of a pod, and decodes it for Append.
func BenchmarkMessage(b *testing.B) {
	p := pod().(*corev1.Pod)
	p.TypeMeta = metav1.TypeMeta{} // a message does not have it
	message, err := p.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	for _, by := range []struct {
		name   string
		encode func([]byte) ([]byte, bool)
	}{
		{"message", func(w []byte) ([]byte, bool) { return AppendMessage(w, reflect.TypeFor[corev1.Pod](), message) }},
		{"decoded", func(w []byte) ([]byte, bool) {
			var p corev1.Pod
			if err := p.Unmarshal(message); err != nil {
				return w, false
			}
			return Append(w, &p)
		}},
	} {
		b.Run("by="+by.name, func(b *testing.B) {
			var w []byte
			b.ReportAllocs()
			for b.Loop() {
				var ok bool
				if w, ok = by.encode(w[:0]); !ok {
					b.Fatal("not encoded")
				}
			}
		})
	}
}

// pod returns a pod as a cluster has it: about 6 KB of JSON, a third of it managed fields.
func pod() runtime.Object {
	now := metav1.NewTime(time.Unix(1_790_000_000, 0))
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-1", Name: "web-5d4f8c7b9c-1", GenerateName: "web-", CreationTimestamp: now,
			UID:    "00000000-0000-4000-8000-000000000001",
			Labels: map[string]string{"app": "web-7", "pod-template-hash": "5d4f8c7b9c", "tier": "front"},
			Annotations: map[string]string{"prometheus.io/scrape": "true",
				"example.com/last-applied": `{"name":"web","ports":[{"containerPort":8080}]}`},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "default", RestartPolicy: corev1.RestartPolicyAlways},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, PodIP: "10.2.3.4"},
	}
	for _, name := range []string{"web", "proxy", "logs"} {
		image := "registry.example.com/team/" + name +
			"@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
		probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz",
			Port: intstr.FromInt32(8080), Scheme: corev1.URISchemeHTTP}},
			InitialDelaySeconds: 5, PeriodSeconds: 10, TimeoutSeconds: 2, SuccessThreshold: 1, FailureThreshold: 3}
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: name, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(
				fmt.Sprintf(
					`{"f:spec":{"f:containers":{"k:{\"name\":\"%s\"}":{".":{},"f:args":{},"f:env":{".":{},"k:{\"name\":\"REGION\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}}}}}}}`, name)),
		})
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: name, Image: image, Args: []string{"--listen=:8080", "--config=/etc/web/config.yaml"},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			Env:   []corev1.EnvVar{{Name: "REGION", Value: "eu-central-1"}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("256Mi")},
			},
			VolumeMounts:  []corev1.VolumeMount{{Name: "config", MountPath: "/etc/web", ReadOnly: true}},
			LivenessProbe: probe, ReadinessProbe: probe,
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Image: image, ImageID: image, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
		corev1.PodScheduled} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue,
			LastTransitionTime: now})
	}
	return p
}
