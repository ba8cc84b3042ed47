package testserver_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/server/testserver"
)

// BenchmarkStart starts and stops a server.
func BenchmarkStart(b *testing.B) {
	var ready, stopped time.Duration
	for b.Loop() {
		begin := time.Now()
		srv := testserver.New(b)
		ready += time.Since(begin)
		begin = time.Now()
		srv.Close()
		stopped += time.Since(begin)
	}
	b.ReportMetric(ready.Seconds()*1000/float64(b.N), "ready-ms/op")
	b.ReportMetric(stopped.Seconds()*1000/float64(b.N), "stop-ms/op")
}

var serversFlag = flag.Int("servers", 200, "servers of BenchmarkServers")

// BenchmarkServers runs many servers at a time.
func BenchmarkServers(b *testing.B) {
	servers := *serversFlag
	for b.Loop() {
		all := make([]*testserver.Server, servers)
		begin := time.Now()
		parallel(servers, func(i int) { all[i] = testserver.New(b) })
		b.ReportMetric(time.Since(begin).Seconds(), "start-s")
		debug.FreeOSMemory()
		b.ReportMetric(memory(b, "VmRSS"), "RSS-MiB") // after a collection
		b.ReportMetric(memory(b, "VmHWM"), "peak-RSS-MiB")
		b.ReportMetric(float64(runtime.NumGoroutine())/float64(servers), "goroutines/server")
		begin = time.Now()
		parallel(servers, func(i int) { all[i].Close() })
		b.ReportMetric(time.Since(begin).Seconds(), "stop-s")
	}
}

// parallel calls do for 0 to n-1, in four goroutines a processor, as go test -parallel can: a start waits for half of
// its time.
func parallel(n int, do func(i int)) {
	var workers sync.WaitGroup
	var next atomic.Int64
	for range 4 * runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	workers.Wait()
}

// memory returns a line of /proc/self/status in MiB; zero where there is no such file.
func memory(b *testing.B, line string) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, value, _ := strings.Cut(string(status), line+":")
	var kilobytes float64
	if _, err := fmt.Sscanf(value, "%f", &kilobytes); err != nil {
		b.Fatal(err)
	}
	return kilobytes / 1024
}

// BenchmarkFork forks a server without and with objects: until Fork returns, until the fork answers requests, and until
// it has returned one of the objects.
func BenchmarkFork(b *testing.B) {
	for _, objects := range []int{0, 50_000} {
		b.Run(fmt.Sprint(objects, " objects"), func(b *testing.B) { forks(b, objects) })
	}
}

func forks(b *testing.B, objects int) {
	srv := testserver.New(b)
	c := connect(b, srv.Config())
	data := map[string]string{"k": strings.Repeat("x", 1000)}
	var creating sync.WaitGroup
	for part := range 8 {
		creating.Go(func() {
			for i := part; i <= objects; i += 8 {
				m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%05d", i)}, Data: data}
				if _, err := c.CoreV1().ConfigMaps("default").Create(b.Context(), m, metav1.CreateOptions{}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	creating.Wait()
	var forked, ready time.Duration
	for b.Loop() {
		begin := time.Now()
		fork := srv.Fork(b)
		forked += time.Since(begin)
		config := fork.Config()
		ready += time.Since(begin)
		must(connect(b, config).CoreV1().ConfigMaps("default").Get(b.Context(), "m00000", metav1.GetOptions{}))(b)
		b.StopTimer()
		fork.Close()
		b.StartTimer()
	}
	b.ReportMetric(forked.Seconds()*1000/float64(b.N), "fork-ms/op")
	b.ReportMetric(ready.Seconds()*1000/float64(b.N), "ready-ms/op")
}

// BenchmarkCreateAndWatch creates an object, and waits until an open watch delivers it.
func BenchmarkCreateAndWatch(b *testing.B) {
	srv := testserver.New(b)
	c := connect(b, srv.Config())
	w := follow(b, c, createMap(b, c, "first").ResourceVersion)
	i := 0
	for b.Loop() {
		i++
		name := fmt.Sprint("m", i)
		createMap(b, c, name)
		if got := next(b, w); got != "ADDED "+name {
			b.Fatal(got)
		}
	}
}
