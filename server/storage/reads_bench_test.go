package storage_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
	"github.com/keepwatch/keepwatch/store"
)

// BenchmarkReads reads 2,000 pods by storage.Interface. It reports the CPU time of the process for
// each read.
func BenchmarkReads(b *testing.B) {
	client := runEtcd(b)
	var first int64
	for i := range 2000 {
		pod := fleet.Pod(i)
		pod.Namespace = "ns"
		answer := must(client.KV.Put(b.Context(), "/registry/pods/ns/"+pod.Name,
			string(must(runtime.Encode(corePods{}.codec(), pod))(b))))(b)
		if i == 0 {
			first = answer.Header.Revision
		}
	}
	s := run(b, client, corePods{}, store.Options{})
	reads := map[string]func(){
		"get": func() {
			must(0, s.Get(b.Context(), "/pods/ns/web-00007", apistorage.GetOptions{}, &corev1.Pod{}))(b)
		},
		"list": func() { must(0, s.GetList(b.Context(), "/pods/", from("0"), &corev1.PodList{}))(b) },
		"page": func() {
			page := everything
			page.Predicate.Limit = 100
			must(0, s.GetList(b.Context(), "/pods/", page, &corev1.PodList{}))(b)
		},
		"history": func() {
			w := must(s.Watch(b.Context(), "/pods/", from(fmt.Sprint(first))))(b)
			defer w.Stop()
			for range 1999 {
				if e := <-w.ResultChan(); e.Object == nil {
					b.Fatal("the watch has ended")
				}
			}
		},
	}
	for _, name := range strings.Fields("get list page history") {
		b.Run(name, func(b *testing.B) {
			reads[name]()
			began := processTime()
			for b.Loop() {
				reads[name]()
			}
			b.ReportMetric(float64(processTime()-began)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processTime returns the CPU time of the process.
func processTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
