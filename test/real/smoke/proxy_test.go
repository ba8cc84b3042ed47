package smoke

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/test/peer"
)

// TestFaultsReachClientGo checks the proxy's faults with a real server's frames, in both
// encodings, and with client-go.
func TestFaultsReachClientGo(t *testing.T) {
	s := peer.SharedKubernetes(t)
	created := createPod(t, s, "faulty")
	for _, encoding := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(encoding, func(t *testing.T) {
			proxy := faults.New(t, s.Config(), faults.Plan{})
			config := proxy.Config()
			config.ContentType = encoding
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			proxy.Next(faults.Watch, "pods", faults.Repeat.After(1))
			w, err := client.CoreV1().Pods("default").Watch(t.Context(),
				metav1.ListOptions{FieldSelector: "metadata.name=faulty"})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			for range 2 {
				e := <-w.ResultChan()
				if pod, ok := e.Object.(*corev1.Pod); e.Type != watch.Added || !ok || pod.UID != created.UID {
					t.Fatalf("got %v, want the pod", e)
				}
			}
			if n := proxy.Now(faults.Watch, "pods", faults.Event(faults.Expired)); n != 1 {
				t.Fatalf("%d open watches, want 1", n)
			}
			if e := <-w.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
				t.Errorf("got %v, want 410 Expired", e)
			}
			if e, open := <-w.ResultChan(); open {
				t.Errorf("got %v after the error, want the end", e)
			}

			proxy.Next(faults.List, "pods", faults.Answer(faults.Gone))
			if _, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsGone(err) {
				t.Errorf("list: %v, want 410 Gone", err)
			}
			direct := clientset(t, s).CoreV1().Pods("default")
			want, err := direct.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			// Of the same revision: the API server writes objects of its own at any time.
			got, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{
				ResourceVersion: want.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
			})
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("list through the proxy: %v %v", got, err)
			}
		})
	}
}

// TestGarbageIsNoEvent checks that a frame of garbage is one: framed well, and
// nothing that decodes.
func TestGarbageIsNoEvent(t *testing.T) {
	s := peer.SharedKubernetes(t)
	createPod(t, s, "garbled")
	for _, encoding := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(encoding, func(t *testing.T) {
			proxy := faults.New(t, s.Config(), faults.Plan{HTTP1: true})
			config := proxy.Config()
			config.ContentType = encoding
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			proxy.Next(faults.Watch, "pods", faults.Garbage)
			w, err := client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if e := <-w.ResultChan(); e.Type != watch.Error {
				t.Errorf("got %v, want an error of decoding", e)
			}
		})
	}
}
