package object

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/source/kube"
)

// realPod returns the JSON of a pod as a cluster has it: 8.8 KB, a third of it managed fields.
func realPod(i int) string {
	var managed, containers, conditions []string
	for _, manager := range []string{"kube-controller-manager", "kube-scheduler", "kubelet"} {
		managed = append(managed, `{"manager":"`+manager+
			`","operation":"Update","apiVersion":"v1","time":"2026-11-01T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"7f1b2c3d-0000-4000-8000-000000000000\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"POD\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:fieldRef":{}}}},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{}},"f:name":{},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}}},"f:volumeMounts":{".":{},"k:{\"mountPath\":\"/etc/config\"}":{".":{},"f:mountPath":{},"f:name":{}}}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{}}}}`)
	}
	for _, name := range []string{"web", "proxy", "logs"} {
		containers = append(containers, `{"name":"`+name+`","image":"registry.example.com/team/`+name+
			`:v1.2.3","args":["--listen=:8080","--level=\"info\""],"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"REGION","value":"eu-central-1"},{"name":"POD","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}}],"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100m","memory":"128Mi"}},"volumeMounts":[{"name":"config","mountPath":"/etc/config"},{"name":"kube-api-access","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"livenessProbe":{"httpGet":{"path":"/healthz","port":8080,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}`)
	}
	for _, kind := range []string{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		conditions = append(conditions, `{"type":"`+kind+
			`","status":"True","observedGeneration":1,"lastProbeTime":null,"lastTransitionTime":"2026-11-01T10:00:00Z"}`)
	}
	statuses := strings.Repeat(
		fmt.Sprintf(
			`,{"name":"web","state":{"running":{"startedAt":"2026-11-01T10:00:00Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example.com/team/web:v1.2.3","imageID":"registry.example.com/team/web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","containerID":"containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789%06d","started":true}`, i), 3)[1:]
	applied := strings.Repeat(`{\"name\":\"web\",\"ports\":[{\"containerPort\":8080}]},`, 10)
	return fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-5d4f8c7b9c-%05d","generateName":"web-5d4f8c7b9c-","namespace":"team-%d","uid":"0a1b2c3d-0000-4000-8000-%012d","resourceVersion":"%d","generation":1,"creationTimestamp":"2026-11-01T10:00:00Z","labels":{"app":"web","pod-template-hash":"5d4f8c7b9c"},"annotations":{"example.com/last-applied":"%s"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d4f8c7b9c","uid":"7f1b2c3d-0000-4000-8000-000000000000","controller":true,"blockOwnerDeletion":true}],"managedFields":[%s]},"spec":{"volumes":[{"name":"config","configMap":{"name":"web","defaultMode":420}}],"containers":[%s],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","nodeName":"node-%d","securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{"observedGeneration":1,"phase":"Running","conditions":[%s],"hostIP":"10.0.0.1","podIP":"10.1.2.3","podIPs":[{"ip":"10.1.2.3"}],"startTime":"2026-11-01T10:00:00Z","containerStatuses":[%s],"qosClass":"Burstable"}}`,
		i, i/500, i, 1000+i, applied, strings.Join(managed, ","), strings.Join(containers, ","), i%100,
		strings.Join(conditions, ","), statuses)
}

// BenchmarkProtobuf decodes pods by the struct's tags and by the generated code.
func BenchmarkProtobuf(b *testing.B) {
	var texts [][]byte
	for i := range pods {
		var pod corev1.Pod
		if err := json.Unmarshal([]byte(realPod(i)), &pod); err != nil {
			b.Fatal(err)
		}
		text, err := pod.Marshal()
		if err != nil {
			b.Fatal(err)
		}
		texts = append(texts, text)
	}
	m, in := messageOf(reflect.TypeFor[corev1.Pod]()), newInterner(Options{})
	measure(b, "by=tags", texts, func(text []byte) (any, error) {
		pod := &corev1.Pod{}
		return pod, m.decode(in, reflect.ValueOf(pod).Elem(), text)
	})
	measure(b, "by=generated", texts, func(text []byte) (any, error) {
		pod := &corev1.Pod{}
		return pod, pod.Unmarshal(text)
	})
}

// BenchmarkJSON decodes pods by this package, by the API machinery and by go-json-experiment.
func BenchmarkJSON(b *testing.B) {
	var texts [][]byte
	for i := range pods {
		texts = append(texts, []byte(realPod(i)))
	}
	d := newJSONDecoder()
	measure(b, "as=pod/by=object", texts, func(text []byte) (any, error) {
		pod := &corev1.Pod{}
		return pod, decodeInto(d, text, pod)
	})
	measure(b, "as=pod/by=machinery", texts, func(text []byte) (any, error) {
		pod := &corev1.Pod{}
		return pod, utiljson.Unmarshal(text, pod)
	})
	measure(b, "as=pod/by=json-experiment", texts, func(text []byte) (any, error) {
		pod := &corev1.Pod{}
		return pod, jsonv2.Unmarshal(text, pod, jsontext.AllowDuplicateNames(true))
	})
	d = newJSONDecoder() // its field sets have another type
	measure(b, "as=map/by=object", texts, func(text []byte) (any, error) { return d.untyped(text) })
	measure(b, "as=map/by=machinery", texts, func(text []byte) (any, error) {
		var m map[string]any
		err := utiljson.Unmarshal(text, &m)
		return m, err
	})
}

// pods is the number of pods that a benchmark decodes and retains.
const pods = 10_000

// measure decodes all texts for each iteration. It reports the CPU time with garbage collection, and the
// heap that the values retain.
func measure(b *testing.B, name string, texts [][]byte, decode func(text []byte) (any, error)) {
	b.Run(name, func(b *testing.B) {
		var cpu time.Duration
		var retained uint64
		b.ReportAllocs()
		for b.Loop() {
			values := make([]any, len(texts))
			before, begun := heap(), cpuTime(b)
			for i, text := range texts {
				var err error
				if values[i], err = decode(text); err != nil {
					b.Fatal(err)
				}
			}
			cpu += cpuTime(b) - begun
			retained += heap() - before
			runtime.KeepAlive(values)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(cpu.Nanoseconds())/1e3/float64(b.N*len(texts)), "cpu-µs/object")
		b.ReportMetric(float64(retained)/float64(b.N*len(texts)), "B-retained/object")
	})
}

// heap returns the size of the live heap.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // it frees what the first one finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// cpuTime returns the CPU time of the process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkUnpack reads objects that are stored encoded and whose values are not cached. Run it with
// -cpu 1,2,4.
func BenchmarkUnpack(b *testing.B) {
	for _, encoding := range []kube.Encoding{kube.JSON, kube.Protobuf} {
		b.Run(encoding.String(), func(b *testing.B) {
			c := New(&corev1.Pod{}, podKind, Options{Compact: true})
			items := make([]*item.Item, 1000)
			for n := range items {
				raw, _ := rawPod(b, encoding, n)
				o, err := c.Decode(raw)
				if err != nil {
					b.Fatal(err)
				}
				items[n] = o.(*item.Item)
			}
			var next atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					items[next.Add(1)%int64(len(items))].Value()
				}
			})
		})
	}
}
