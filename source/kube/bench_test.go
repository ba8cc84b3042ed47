package kube

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// realPod returns a pod of realistic size: 8.8 KB, a third of it managedFields.
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
		`,{"name":"web","state":{"running":{"startedAt":"2026-11-01T10:00:00Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example.com/team/web:v1.2.3","imageID":"registry.example.com/team/web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","containerID":"containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","started":true}`, 3)[1:]
	applied := strings.Repeat(`{\"name\":\"web\",\"ports\":[{\"containerPort\":8080}]},`, 10)
	return fmt.Sprintf(
		`{"metadata":{"name":"web-5d4f8c7b9c-%05d","generateName":"web-5d4f8c7b9c-","namespace":"team-%d","uid":"0a1b2c3d-0000-4000-8000-%012d","resourceVersion":"%d","generation":1,"creationTimestamp":"2026-11-01T10:00:00Z","labels":{"app":"web","pod-template-hash":"5d4f8c7b9c"},"annotations":{"example.com/last-applied":"%s"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d4f8c7b9c","uid":"7f1b2c3d-0000-4000-8000-000000000000","controller":true,"blockOwnerDeletion":true}],"managedFields":[%s]},"spec":{"volumes":[{"name":"config","configMap":{"name":"web","defaultMode":420}}],"containers":[%s],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","nodeName":"node-%d","securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{"observedGeneration":1,"phase":"Running","conditions":[%s],"hostIP":"10.0.0.1","podIP":"10.1.2.3","podIPs":[{"ip":"10.1.2.3"}],"startTime":"2026-11-01T10:00:00Z","containerStatuses":[%s],"qosClass":"Burstable"}}`,
		i, i/500, i, 1000+i, applied, strings.Join(managed, ","), strings.Join(containers, ","), i%100,
		strings.Join(conditions, ","), statuses)
}

func BenchmarkListPage(b *testing.B) {
	var items []string
	for i := range 500 {
		items = append(items, realPod(i))
	}
	text := podList(9999, `,"continue":"next"`, items...)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		page, failure := readPage(text, DefaultMaxObject)
		if failure != nil || len(page.Objects) != len(items) {
			b.Fatal(len(page.Objects), failure)
		}
	}
}

func BenchmarkListOverTheWire(b *testing.B) {
	var items []string
	for i := range 500 {
		items = append(items, realPod(i))
	}
	text := []byte(podList(9999, "", items...))
	for _, protocol := range protocols {
		b.Run(protocol, func(b *testing.B) {
			s := newSource(b, serve(b, protocol, func(w http.ResponseWriter, r *http.Request) { w.Write(text) }), Options{})
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if page, err := s.List(b.Context(), keepwatch.ListRequest{}); err != nil || len(page.Objects) != len(items) {
					b.Fatal(len(page.Objects), err)
				}
			}
		})
	}
}

func BenchmarkWatchFrames(b *testing.B) {
	var text bytes.Buffer
	const events = 500
	for i := range events {
		fmt.Fprintf(&text, `{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1",%s}`+"\n", realPod(i)[1:])
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		w := follow((&Source{}).frames(exchangeReading(bytes.NewReader(text.Bytes()), DefaultMaxObject), 5),
			keepwatch.Batch{From: 5, To: 5}, DefaultBatchBytes)
		got := 0
		for {
			batch, err := w.Next()
			if err != nil {
				break
			}
			got += len(batch.Changes)
		}
		w.Close()
		if got != events {
			b.Fatal(got)
		}
	}
}

func BenchmarkMetadata(b *testing.B) {
	page, failure := readPage(podList(9999, "", realPod(0)), DefaultMaxObject)
	if failure != nil {
		b.Fatal(failure)
	}
	b.ReportAllocs()
	for b.Loop() {
		page.Objects[0].(*Object).Metadata()
	}
}
