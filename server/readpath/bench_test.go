package readpath

import (
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
	"github.com/keepwatch/keepwatch/server/source/memory"
)

// BenchmarkFirstList lists the pods of a storage that has just started and decoded none of them. It
// reports the CPU time and the allocations for one pod, without HTTP.
func BenchmarkFirstList(b *testing.B) {
	const n = 10_000
	db := fleetOf(b, n)
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
				r := newRig(b, pods, options{db: db})
				if form.upstreams {
					r.reader.json = r.reader.json.(planSerializer).Serializer
				}
				q := httptest.NewRequest(http.MethodGet, r.path(""), nil)
				q.Header = accept(form.accept, "Accept-Encoding", form.encoding)
				q = r.withInfo(q)
				goruntime.GC()
				begun, before := cpuTime(b), memoryStats().TotalAlloc
				w := &countingWriter{header: http.Header{}}
				r.handler.ServeHTTP(w, q)
				cpu, allocated = cpu+cpuTime(b)-begun, allocated+memoryStats().TotalAlloc-before
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

// fleetOf returns a database with n pods.
func fleetOf(b *testing.B, n int) *memory.DB {
	db := memory.New()
	b.Cleanup(db.Close)
	client := db.Client(registry + "/pods/")
	for i := range n {
		pod := fleet.Pod(i)
		must(client.OptimisticPut(b.Context(), registry+"/pods/"+pod.Namespace+"/"+pod.Name,
			must(runtime.Encode(pods.codec, pod))(b), 0, kubernetes.PutOptions{}))(b)
	}
	return db
}

// cpuTime returns the CPU time of the process.
func cpuTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	must(0, syscall.Getrusage(syscall.RUSAGE_SELF, &u))(t)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func memoryStats() (m goruntime.MemStats) {
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
