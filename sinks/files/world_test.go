package files_test

import (
	"bytes"
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/sinks/files"
	"github.com/keepwatch/keepwatch/sinks/statedir"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

var (
	seedFlag  = flag.Uint64("sinks.seed", 1, "draw changes and faults as a run did that printed this seed; 0 draws anew")
	stepsFlag = flag.Int("sinks.steps", 300, "how many things happen to the sources of a run")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(await.Tests(m))
}

// TestWorld folds the files and compares them with sources that change, expire and are restored, while batches are
// torn and commits fail.
func TestWorld(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	report, fold := runWorld(t, seed, *stepsFlag, func(r sink.Receiver) sink.Receiver { return r })
	for _, p := range report.Problems {
		t.Error(p)
	}
	t.Logf("seed %d: %d cuts, %d gaps, %d commits failed, %d rewinds, %d lines, %d repeated", seed, report.Cuts,
		report.Gaps, report.Failed, report.Epochs, fold.Lines, fold.Repeated)
	if *seedFlag == 1 && *stepsFlag >= 300 && (report.Cuts < 40 || report.Gaps < 10 || report.Failed < 10 ||
		report.Epochs < 1 || fold.Repeated < 10) {
		t.Error("too little has happened")
	}
}

// follower folds the lines of a directory, as a program does that follows the files.
type follower struct {
	sinktest.Fold
	dir   string
	lines int
	text  []byte // all lines
}

func newFollower(dir string) *follower {
	f := &follower{dir: dir}
	f.Read = f.read
	return f
}

// read adds the lines since the last call.
func (f *follower) read() error {
	text, err := readAfter(f.dir, f.lines)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		f.Add(line)
		f.lines++
	}
	f.text = append(f.text, text...)
	return nil
}

func runWorld(t *testing.T, seed uint64, steps int,
	wrap func(sink.Receiver) sink.Receiver) (report sinktest.Report, fold *follower) {
	t.Helper()
	dir := sinktest.MemoryDir(t)
	out := filepath.Join(dir, "out")
	fold = newFollower(out)
	synctest.Test(t, func(t *testing.T) {
		receiver := wrap(files.New(out, files.Options{MaxSize: 20_000, MaxAge: 5 * time.Second, Compression: files.Zstd}))
		torn := &sinktest.Torn{Receiver: receiver, Random: rand.New(rand.NewPCG(seed, 3)), Every: 15}
		var err error
		report, err = sinktest.Run(t.Context(), sinktest.Config{
			Sink: statedir.New(filepath.Join(dir, "state"), torn), Tables: fold, Repeats: true, Seed: seed, Steps: steps,
			Patience: 10 * time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	// The files that were read early were compressed since.
	if text, err := readAll(out); err != nil || !bytes.Equal(text, fold.text) {
		t.Errorf("seed %d: the files have other lines than when they were read: %v", seed, err)
	}
	return report, fold
}

// TestMutants checks that the run notices receivers with a planted fault.
func TestMutants(t *testing.T) {
	for name, mutant := range map[string]func(sink.Receiver) sink.Receiver{
		"cursor before rows":   func(r sink.Receiver) sink.Receiver { return &sinktest.Behind{Receiver: r} },
		"a batch that is lost": func(r sink.Receiver) sink.Receiver { return &sinktest.Lossy{Receiver: r} },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= 5; seed++ {
				if report, _ := runWorld(t, seed, 60, mutant); len(report.Problems) > 0 {
					t.Logf("seed %d: %s", seed, report.Problems[0])
					return
				}
			}
			t.Error("not noticed in 5 runs")
		})
	}
}

// BenchmarkPods measures the files and the manifest, without the state directory.
func BenchmarkPods(b *testing.B) {
	n := 0
	dir := b.TempDir()
	sinktest.Benchmark(b, 5000, func() sink.Sink {
		n++
		return bare{files.New(filepath.Join(dir, strconv.Itoa(n)), files.Options{})}
	})
}

// bare is a receiver as a sink without a state.
type bare struct{ *files.Directory }

func (s bare) Open(ctx context.Context, streams []sink.Stream) ([]sink.Stored, error) {
	return make([]sink.Stored, len(streams)), s.Directory.Open(ctx, streams, sink.Delivered{Progress: make([]sink.Progress,
		len(streams))})
}
