package controlplane

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/proto"
)

// frameHeader is the length, in bytes, of the length that is before every record of the log.
const frameHeader = 8

// journal is what etcd's write-ahead log says about where it begins and ends.
type journal struct {
	// entry is the index of the last entry.
	entry uint64
	// commit is up to where the log knows its entries as committed; it may lag behind.
	commit uint64
	// snapshots are the indexes from which on the log is complete, in their order.
	snapshots []uint64

	// crc is the running checksum, over all files.
	crc uint32
}

// readJournal reads the files of a log in their order. Any damage is an error, but for a record that
// a crash cut off at the very end: that one etcd drops, since nothing was answered before it was
// whole.
func readJournal(ctx context.Context, files []string) (*journal, error) {
	j := &journal{}
	for i, path := range files {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := j.read(path, i == len(files)-1); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	return j, nil
}

// start is the index that etcd starts the log at: it needs a database that has at least this.
func (j *journal) start() uint64 {
	var start uint64
	for _, index := range j.snapshots {
		if index <= j.commit {
			start = index
		}
	}
	return start
}

func (j *journal) read(path string, last bool) error {
	file, err := os.Open(path)
	if err != nil {
		return reason(err)
	}
	defer file.Close()
	decoder := wal.NewDecoder(fileutil.NewFileReader(file))
	decoder.UpdateCRC(j.crc)
	record := &walpb.Record{}
	for err = decoder.Decode(record); err == nil; err = decoder.Decode(record) {
		if err := j.take(record, decoder); err != nil {
			return err
		}
	}
	j.crc = decoder.LastCRC()
	torn := last && errors.Is(err, io.ErrUnexpectedEOF)
	if !torn && !errors.Is(err, io.EOF) {
		return err
	}
	return checkEnd(file, decoder.LastOffset())
}

// take learns from a record whose own checksum is right.
func (j *journal) take(record *walpb.Record, decoder wal.Decoder) error {
	switch record.GetType() {
	case wal.CrcType: // at the start of a file: where the one before has ended
		if sum := decoder.LastCRC(); sum != 0 && record.Validate(sum) != nil {
			return wal.ErrCRCMismatch
		}
		decoder.UpdateCRC(record.GetCrc())
	case wal.EntryType:
		j.entry = wal.MustUnmarshalEntry(record.Data).GetIndex()
	case wal.StateType:
		j.commit = wal.MustUnmarshalState(record.Data).GetCommit()
	case wal.SnapshotType:
		var snapshot walpb.Snapshot
		if err := proto.Unmarshal(record.Data, &snapshot); err != nil {
			return err
		}
		j.snapshots = append(j.snapshots, snapshot.GetIndex())
	}
	return nil
}

// checkEnd looks behind the last good record of a file, which ends at offset. There may be one record
// that was cut off while it was written, and then nothing but the zeros that etcd puts there before.
// Whatever else follows is lost if etcd goes on: it takes each record that it can't read, and a
// length of zero, for the end, and clears what is behind.
func checkEnd(file *os.File, offset int64) error {
	info, err := file.Stat()
	if err != nil {
		return reason(err)
	}
	rest := io.NewSectionReader(file, offset, info.Size()-offset)
	torn, err := tornBytes(rest)
	if err != nil {
		return err
	}
	if _, err := rest.Seek(torn, io.SeekStart); err != nil {
		return err
	}
	page, zeros := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, err := rest.Read(page)
		if !bytes.Equal(page[:n], zeros[:n]) { // of 64 MiB at a start, so not byte by byte
			return fmt.Errorf("the record at byte %d is broken, and it isn't the last", offset)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return reason(err)
		}
	}
}

// tornBytes is how much of a broken record at the start of r can belong to a record that was cut off.
//
// A record's length is told twice: before it, and in it by the lengths of its fields. A crash doesn't
// garble lengths, since they never lie across two sectors. So the record is as long as both agree on;
// if they don't, only as long as it makes sense.
func tornBytes(r io.ReaderAt) (int64, error) {
	start := make([]byte, frameHeader+32) // the three fields' own bytes take 2, 6 and at most 11
	if n, err := r.ReadAt(start, 0); err != nil {
		if !errors.Is(err, io.EOF) {
			return 0, reason(err)
		}
		start = append(start[:n], make([]byte, len(start)-n)...)
	}
	header, record := binary.LittleEndian.Uint64(start), start[frameHeader:]
	length, padding := header&(1<<56-1), (header>>56)&7
	at := 0
	var size uint64
	for _, tag := range []byte{0x08, 0x10, 0x1a} { // type, checksum and data of a walpb.Record
		value, n := binary.Uvarint(record[at+1:])
		if record[at] != tag || n <= 0 {
			return int64(frameHeader + at), nil
		}
		at += 1 + n
		size = value
	}
	if uint64(at)+size != length {
		return int64(frameHeader + at), nil
	}
	return int64(frameHeader + length + padding), nil
}
