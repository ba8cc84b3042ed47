package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var (
	besideFor = flag.Duration("beside.for", 0,
		"how long a history is read beside its sync; 0 is 1s with -short, and 5s without")
	besideSeed = flag.Uint64("beside.seed", 0, "the seed of a run that printed it; 0 draws one")
)

// beside is a history that is read while its sync writes.
type beside struct {
	*testing.T
	past     *pastServer
	live     *http.Client
	address  string // of the list
	file     string
	client   kubernetes.Interface
	ctx      context.Context
	longest  int64 // the write-ahead log
	compared atomic.Int64
	replayed atomic.Int64 // events

	mu       sync.Mutex
	lag      time.Duration // the age of the oldest list that was not stored yet
	recorded []listBeside
	random   *rand.Rand
}

// listBeside is a list that the cluster has answered at a time.
type listBeside struct {
	recordedList
	time time.Time
}

const besideList = "/api/v1/namespaces/default/configmaps"

// TestHistoryBesideSync reads a SQLite file for as long as -beside.for says while a sync writes it: lists at random
// moments, replays that begin anew all the time, and the log of an object. Each list is the one that the cluster has
// answered, nothing fails, and neither the write-ahead log nor the memory of the processes grows with the time.
func TestHistoryBesideSync(t *testing.T) {
	parallel(t)
	span, seed := cmp.Or(*besideFor, inShort(time.Second, 5*time.Second)), cmp.Or(*besideSeed, rand.Uint64())
	t.Logf("-beside.seed %d -beside.for %v", seed, span)
	client, kubeconfig := newCluster(t)
	config := configOf(t, kubeconfig)
	live, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	b := &beside{T: t, live: live, address: config.Host + besideList, file: filepath.Join(t.TempDir(), "state.db"),
		client: client, random: rand.New(rand.NewPCG(seed, 1))}
	to := "sqlite:" + b.file
	syncing := startProcess(t, "sync", "configmaps", "-A", "--to", to)
	syncing.waitStderr(t, "synced at")
	for i := range 20 {
		o := createMap(t, client, "default", fmt.Sprint("beside-", i))
		if i == 19 {
			stored(t, to, "cm/beside-19", "default", o.ResourceVersion)
		}
	}
	b.record()
	b.past = servePast(t, to)
	ctx, cancel := context.WithTimeout(t.Context(), span)
	b.ctx = ctx
	var readers sync.WaitGroup
	defer func() { cancel(); readers.Wait() }() // also if a write fails
	for range 8 {
		readers.Go(func() { b.loop(b.list) })
		readers.Go(func() { b.loop(b.replay) })
	}
	readers.Go(func() { b.loop(b.log) })
	b.write()
	readers.Wait()
	cancel()
	last := createMap(t, client, "default", "beside-last").ResourceVersion
	stored(t, to, "cm/beside-last", "default", last)
	b.ctx = t.Context()
	for range 20 { // among them what was stored last
		if err := b.list(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d lists are equal, %d events were replayed, the log has had %d bytes, and the sync was %v behind",
		b.compared.Load(), b.replayed.Load(), b.longest, b.lag)
	if span >= time.Hour && b.lag > 5*time.Second { // a short run may be on a machine that is busy
		t.Errorf("the sync was %v behind", b.lag)
	}
	if b.compared.Load() < 20 || b.longest > 256<<20 {
		t.Errorf("%d lists were compared, and the log has had %d bytes", b.compared.Load(), b.longest)
	}
	for name, p := range map[string]*process{"sync": syncing, "serve": b.past.process} {
		if peak := peakOf(p.Process.Pid); peak > 1<<30 {
			t.Errorf("%s has had %d MB", name, int64(peak)>>20)
		}
	}
}

// loop calls read until the time is over. The first error ends it.
func (b *beside) loop(read func() error) {
	for b.ctx.Err() == nil {
		if err := read(); err != nil && b.ctx.Err() == nil {
			b.Error(err)
			return
		}
	}
}

// write changes objects, up to 300 times a second, and records a list at times.
func (b *beside) write() {
	b.Helper()
	pace := time.NewTicker(time.Second / 300)
	defer pace.Stop()
	for i := 0; b.ctx.Err() == nil; i++ {
		<-pace.C
		patch := fmt.Sprintf(`{"data":{"i":"%d","text":%q}}`, i, strings.Repeat(fmt.Sprint(i, " "), 300))
		name := fmt.Sprint("beside-", i*7%20)
		_, err := b.client.CoreV1().ConfigMaps("default").Patch(b.Context(), name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if i%20 == 0 {
			b.record()
			if file, err := os.Stat(b.file + "-wal"); err == nil {
				b.longest = max(b.longest, file.Size())
			}
		}
	}
}

// record records a list of the cluster. Of many lists, random ones and the newest are retained.
func (b *beside) record() {
	b.Helper()
	code, body, _ := fetchBody(b.T, b.live, b.address, acceptJSON)
	var about metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &about); code != http.StatusOK || err != nil {
		b.Fatalf("%d, %s, %v", code, body, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.recorded) == 500 {
		b.recorded = append(b.recorded[:0], b.recorded[1:]...)
		if kept := b.random.IntN(400); b.random.IntN(2) == 0 {
			b.recorded = append(b.recorded[:kept], b.recorded[kept+1:]...)
		}
	}
	list := recordedList{path: besideList, body: body, revision: about.ResourceVersion}
	b.recorded = append(b.recorded, listBeside{list, time.Now()})
}

func (b *beside) any() listBeside {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recorded[b.random.IntN(len(b.recorded))]
}

// get returns the answer of the history, which the caller closes.
func (b *beside) get(path string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(b.ctx, http.MethodGet, b.past.host+path, nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Accept", acceptJSON)
	return b.past.client.Do(q)
}

// list compares a list with the recorded one, which may not be stored yet.
func (b *beside) list() error {
	want := b.any()
	age := time.Since(want.time)
	answer, err := b.get("/at/revision/" + want.revision + besideList)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode == http.StatusGone && bytes.Contains(body, []byte("the history ends before revision")):
		b.mu.Lock()
		b.lag = max(b.lag, age)
		b.mu.Unlock()
		return nil
	case answer.StatusCode != http.StatusOK || !bytes.Equal(body, want.body):
		return fmt.Errorf("at %s: %s\n%.2000s\nwant\n%.2000s", want.revision, answer.Status, body, want.body)
	}
	b.compared.Add(1)
	return nil
}

// replay reads a few hundred events from a random moment on.
func (b *beside) replay() error {
	from := b.any().revision
	answer, err := b.get("/at/revision/" + from + "/speed/0" + besideList + "?watch=1&resourceVersion=" + from)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusGone: // it is not stored yet
		return nil
	default:
		return errors.New("a replay: " + answer.Status)
	}
	lines, reached := bufio.NewReader(answer.Body), from
	for range 300 {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return errors.Join(err, answer.Body.Close())
		}
		var e pastEvent
		err = json.Unmarshal(line, &e)
		order, invalid := resourceversion.CompareResourceVersion(e.Object.ResourceVersion, reached)
		if err = errors.Join(err, invalid); err != nil || e.Type == "ERROR" || order <= 0 {
			return fmt.Errorf("after %s: %s, %v", reached, line, err)
		}
		reached = e.Object.ResourceVersion
		b.replayed.Add(1)
	}
	return nil
}

// log reads the log of an object.
func (b *beside) log() error {
	code, out, stderr := execute(b.T, "history", "log", "cm/beside-1", "-n", "default", "--from", "sqlite:"+b.file)
	if code != 0 || !strings.Contains(out, "ADDED") {
		return fmt.Errorf("exit %d, %s, %s", code, out, stderr)
	}
	return nil
}

// inShort returns the size of a test, the first one with -short.
func inShort[T any](short, long T) T {
	if testing.Short() {
		return short
	}
	return long
}

// peakOf returns the peak memory of a process, 0 if it has ended or the system does not say.
func peakOf(pid int) (bytes float64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	_, _ = fmt.Sscan(rest, &bytes)
	return bytes * 1024
}
