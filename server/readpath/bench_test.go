package readpath

import (
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
)

// BenchmarkFirstList lists the pods of a storage that has just started and decoded none of them. It
// reports the CPU time and the allocations for one pod, without HTTP.
func BenchmarkFirstList(b *testing.B) {
	const n, perWrite = 10_000, 100 // as many as one transaction of etcd may write
	backend, prefix := must(etcd())(b), "/first"
	for i := 0; i < n; i += perWrite {
		var puts []clientv3.Op
		for j := i; j < i+perWrite; j++ {
			pod := fleet.Pod(j)
			puts = append(puts, clientv3.OpPut(prefix+"/pods/"+pod.Namespace+"/"+pod.Name,
				string(must(runtime.Encode(pods.codec, pod))(b))))
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
		{"table", asTable, "", false},
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
