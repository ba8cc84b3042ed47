package readpath

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// BenchmarkFirstList lists the pods of a storage that has just started and decoded none of them. It
// reports the CPU time and the allocations for one pod, without HTTP.
func BenchmarkFirstList(b *testing.B) {
	const n, perWrite = 10_000, 100 // as many as one transaction of etcd may write
	backend, prefix := must(etcd())(b), "/first"
	for i := 0; i < n; i += perWrite {
		var puts []clientv3.Op
		for j := i; j < i+perWrite; j++ {
			pod := fleetPod(j)
			puts = append(puts, clientv3.OpPut(prefix+"/pods/"+pod.Namespace+"/"+pod.Name, string(must(runtime.Encode(pods.codec, pod))(b))))
		}
		must(backend.client.Txn(b.Context()).Then(puts...).Commit())(b)
	}
	for _, form := range []struct {
		name, accept, encoding string
		upstreams              bool // serializer
	}{
		{"json", runtime.ContentTypeJSON, "", false},
		{"json by upstream's serializer", runtime.ContentTypeJSON, "", true},
		{"json+gzip", runtime.ContentTypeJSON, "gzip", false},
		{"json+gzip by upstream's serializer", runtime.ContentTypeJSON, "gzip", true},
		{"protobuf", runtime.ContentTypeProtobuf, "", false},
	} {
		b.Run(form.name, func(b *testing.B) {
			var cpu time.Duration
			var allocated uint64
			for b.Loop() {
				r := newRig(b, pods, options{prefix: prefix})
				if form.upstreams {
					r.reader.json = r.reader.json.(planSerializer).Serializer
				}
				q := httptest.NewRequest(http.MethodGet, r.path(""), nil)
				q.Header = accept(form.accept, "Accept-Encoding", form.encoding)
				q = r.withInfo(q)
				goruntime.GC()
				begun, before := cpuTime(b), memory().TotalAlloc
				w := &countingWriter{header: http.Header{}}
				r.handler.ServeHTTP(w, q)
				cpu, allocated = cpu+cpuTime(b)-begun, allocated+memory().TotalAlloc-before
				if r.delegated.Load() > 0 || w.bytes == 0 {
					b.Fatalf("the response has %d bytes", w.bytes)
				}
				r.stop()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(cpu.Microseconds())/float64(b.N*n), "cpu-µs/object")
			b.ReportMetric(float64(allocated)/float64(b.N*n), "B/object")
		})
	}
}

// cpuTime returns the CPU time of the process.
func cpuTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	must(0, syscall.Getrusage(syscall.RUSAGE_SELF, &u))(t)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func memory() (m goruntime.MemStats) {
	goruntime.ReadMemStats(&m)
	return m
}

// countingWriter counts the bytes of a response.
type countingWriter struct {
	header http.Header
	bytes  int
}

func (d *countingWriter) Header() http.Header { return d.header }
func (d *countingWriter) WriteHeader(int)     {}

func (d *countingWriter) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}

// fleetPod is a pod as a cluster has it: 9 KB of JSON, a third of it managedFields.
func fleetPod(i int) *corev1.Pod {
	now := metav1.NewTime(time.Unix(1_790_000_000+int64(i), 0))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%03d", i/1000), Name: fmt.Sprintf("web-%05d", i), GenerateName: "web-", CreationTimestamp: now,
			UID:    types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)),
			Labels: map[string]string{"app": fmt.Sprintf("web-%d", i%97), "pod-template-hash": fmt.Sprintf("%08x", i%97*7919), "tier": "front", "app.kubernetes.io/managed-by": "deployer"},
			Annotations: map[string]string{"prometheus.io/scrape": "true", "config/checksum": fmt.Sprintf("%064x", i),
				"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat(`{"name":"web","ports":[{"containerPort":8080}]},`, 12)},
		},
		Spec:   corev1.PodSpec{NodeName: fmt.Sprintf("node-%03d", i%500), ServiceAccountName: "default"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, PodIP: fmt.Sprintf("10.2.%d.%d", i/250%250, i%250)},
	}
	for _, manager := range []string{"kube-controller-manager", "kube-scheduler", "kubelet"} {
		var fields strings.Builder
		for _, name := range []string{"web", "proxy", "logs"} {
			fmt.Fprintf(&fields, `"k:{\"name\":\"%s\"}":{".":{},"f:args":{},"f:env":{".":{},"k:{\"name\":\"REGION\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}}}},`, name)
		}
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:containers":{` + fields.String() + `".":{}}}}`),
		})
	}
	for _, name := range []string{"web", "proxy", "logs"} {
		image := "registry.example.com/team/" + name + "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
		probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080), Scheme: corev1.URISchemeHTTP}},
			InitialDelaySeconds: 5, PeriodSeconds: 10, TimeoutSeconds: 2, SuccessThreshold: 1, FailureThreshold: 3}
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: name, Image: image, Args: []string{"--listen=:8080", "--log-level=info", "--config=/etc/web/config.yaml"},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			Env:   []corev1.EnvVar{{Name: "REGION", Value: "eu-central-1"}, {Name: "UPSTREAM_URL", Value: "http://service.team.svc.cluster.local:8080/api/v1"}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("256Mi")},
			},
			VolumeMounts:  []corev1.VolumeMount{{Name: "config", MountPath: "/etc/web", ReadOnly: true}, {Name: "scratch", MountPath: "/tmp"}},
			LivenessProbe: probe, ReadinessProbe: probe, TerminationMessagePath: corev1.TerminationMessagePathDefault, ImagePullPolicy: corev1.PullIfNotPresent,
		})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Image: image, ImageID: image, Ready: true, ContainerID: fmt.Sprintf("containerd://%064x", i),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	return pod
}
