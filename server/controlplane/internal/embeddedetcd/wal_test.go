package embeddedetcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
)

// writeLog writes a log of that many entries with etcd's own code. It returns the only file of the
// log and the offset of each record; the last offset is the end of the last record.
func writeLog(t *testing.T, entries uint64) (file string, offsets []int64) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "wal")
	w, err := wal.Create(nil, dir, []byte("metadata"))
	if err != nil {
		t.Fatal(err)
	}
	for index := uint64(1); index <= entries; index++ {
		entry := &raftpb.Entry{Term: new(uint64(1)), Index: new(index), Data: bytes.Repeat([]byte("content "), 200)}
		state := &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(index)}
		if err := w.Save(state, []*raftpb.Entry{entry}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	return files[0], recordOffsets(t, files[0])
}

func recordOffsets(t *testing.T, file string) []int64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	offsets := []int64{0}
	for {
		record := &walpb.Record{}
		if err := decoder.Decode(record); errors.Is(err, io.EOF) {
			return offsets
		} else if err != nil {
			t.Fatal(err)
		}
		if record.GetType() == wal.CrcType {
			decoder.UpdateCRC(record.GetCrc())
		}
		offsets = append(offsets, decoder.LastOffset())
	}
}

// overwriteAt overwrites a part of a file.
func overwriteAt(t *testing.T, file string, at int64, content []byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(content, at); err != nil {
		t.Fatal(err)
	}
}

// readUint64 reads a number of the file format.
func readUint64(t *testing.T, file string, at int64) uint64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [8]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(b[:])
}

func length(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

func TestReadWAL(t *testing.T) {
	if got := (&walSummary{commit: 5, snapshots: []uint64{0, 4, 9}}).start(); got != 4 {
		t.Errorf("with an uncommitted snapshot at its end a log starts at %d", got)
	}
	file, _ := writeLog(t, 10)
	j, err := readWAL(t.Context(), []string{file})
	if err != nil || j.entry != 10 || j.commit != 10 || j.start() != 0 {
		t.Errorf("it reads %+v: %v", j, err)
	}
}

// A crash can leave the start of one record with nothing behind it. That is not damage.
func TestTruncatedRecord(t *testing.T) {
	for _, left := range []int64{1, 4, 8, 9, 12, 16, 20, 24, 100, 512, 1000} {
		file, offsets := writeLog(t, 10)
		last := offsets[len(offsets)-3] // the entry before the last state
		next := offsets[len(offsets)-1]
		if size := next - last; left >= size {
			t.Fatalf("the record has only %d bytes", size)
		}
		overwriteAt(t, file, last+left, make([]byte, next-last-left))
		j, err := readWAL(t.Context(), []string{file})
		if err != nil || j.entry != 9 {
			t.Errorf("%d bytes are left of the last entry: %+v, %v", left, j, err)
		}
		if err := os.Truncate(file, last+left); err != nil {
			t.Fatal(err)
		}
		if j, err = readWAL(t.Context(), []string{file}); err != nil || j.entry != 9 {
			t.Errorf("the file ends %d bytes into the last entry: %+v, %v", left, j, err)
		}
	}
}

// Damage before the last record is an error. etcd would treat it as a truncated record, and clear
// everything behind it.
func TestDamageBeforeTheEnd(t *testing.T) {
	const entry = 8 // the entry record that is damaged, of those of the file
	for name, damage := range map[string]func(t *testing.T, file string, at int64){
		"length beyond the file": func(t *testing.T, file string, at int64) { overwriteAt(t, file, at, length(1<<40)) },
		"length too long":        func(t *testing.T, file string, at int64) { overwriteAt(t, file, at, length(1<<20)) },
		"length slightly too long": func(t *testing.T, file string, at int64) {
			overwriteAt(t, file, at, length(readUint64(t, file, at)+8))
		},
		"length zero": func(t *testing.T, file string, at int64) { overwriteAt(t, file, at, length(0)) },
		"length 1":    func(t *testing.T, file string, at int64) { overwriteAt(t, file, at, length(1)) },
		"no such bytes": func(t *testing.T, file string, at int64) {
			overwriteAt(t, file, at, bytes.Repeat([]byte{0xff}, 64))
		},
		"zeros":        func(t *testing.T, file string, at int64) { overwriteAt(t, file, at, make([]byte, 512)) },
		"zeros inside": func(t *testing.T, file string, at int64) { overwriteAt(t, file, at+64, make([]byte, 1024)) },
		"one byte":     func(t *testing.T, file string, at int64) { overwriteAt(t, file, at+100, []byte{0}) },
	} {
		t.Run(name, func(t *testing.T) {
			file, offsets := writeLog(t, 10)
			damage(t, file, offsets[entry])
			if j, err := readWAL(t.Context(), []string{file}); err == nil || !strings.HasPrefix(err.Error(), filepath.Base(file)+
				": ") {
				t.Errorf("it reads %+v, %v", j, err)
			}
		})
	}
}
