package embeddedetcd

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

	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
)

// frameHeader is the size, in bytes, of the length field before every record of the log.
const frameHeader = 8

// walSummary is the extent of a write-ahead log.
type walSummary struct {
	// entry is the index of the last entry.
	entry uint64
	// commit is the index up to which the log marks its entries as committed; it may lag behind.
	commit uint64
	// snapshots are the indexes of the snapshot records, in their order. From each of them on the log
	// is complete.
	snapshots []uint64

	// crc is the running checksum, over all files.
	crc uint32
}

// readWAL reads the files of a log in their order. Any damage is an error, except a record that a
// crash truncated at the very end. etcd drops that record: no write was acknowledged before its
// record was complete.
func readWAL(ctx context.Context, files []string) (*walSummary, error) {
	w := &walSummary{}
	for i, path := range files {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := w.readFile(path, i == len(files)-1); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	return w, nil
}

// start returns the index from which etcd reads the log. The database must have at least this entry.
func (w *walSummary) start() uint64 {
	var start uint64
	for _, index := range w.snapshots {
		if index <= w.commit {
			start = index
		}
	}
	return start
}

func (w *walSummary) readFile(path string, last bool) error {
	file, err := os.Open(path)
	if err != nil {
		return datadir.Cause(err)
	}
	defer file.Close()
	decoder := wal.NewDecoder(fileutil.NewFileReader(file))
	decoder.UpdateCRC(w.crc)
	record := &walpb.Record{}
	for err = decoder.Decode(record); err == nil; err = decoder.Decode(record) {
		if err := w.add(record, decoder); err != nil {
			return err
		}
	}
	w.crc = decoder.LastCRC()
	truncated := last && errors.Is(err, io.ErrUnexpectedEOF)
	if !truncated && !errors.Is(err, io.EOF) {
		return err
	}
	return checkEnd(file, decoder.LastOffset())
}

// add updates the summary with a record whose own checksum is right.
func (w *walSummary) add(record *walpb.Record, decoder wal.Decoder) error {
	switch record.GetType() {
	case wal.CrcType: // at the start of a file: the checksum at the end of the file before
		if sum := decoder.LastCRC(); sum != 0 && record.Validate(sum) != nil {
			return wal.ErrCRCMismatch
		}
		decoder.UpdateCRC(record.GetCrc())
	case wal.EntryType:
		w.entry = wal.MustUnmarshalEntry(record.Data).GetIndex()
	case wal.StateType:
		w.commit = wal.MustUnmarshalState(record.Data).GetCommit()
	case wal.SnapshotType:
		var snapshot walpb.Snapshot
		if err := proto.Unmarshal(record.Data, &snapshot); err != nil {
			return err
		}
		w.snapshots = append(w.snapshots, snapshot.GetIndex())
	}
	return nil
}

// checkEnd checks the bytes of a file behind its last good record, which ends at offset. They may be
// one record that was truncated while it was written, followed by nothing but the zeros that etcd
// preallocates. If anything else followed, etcd would lose it: etcd treats a record that it cannot
// read, and a length of zero, as the end of the log, and clears the rest.
func checkEnd(file *os.File, offset int64) error {
	info, err := file.Stat()
	if err != nil {
		return datadir.Cause(err)
	}
	rest := io.NewSectionReader(file, offset, info.Size()-offset)
	truncated, err := truncatedBytes(rest)
	if err != nil {
		return err
	}
	if _, err := rest.Seek(truncated, io.SeekStart); err != nil {
		return err
	}
	page, zeros := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, err := rest.Read(page)
		if !bytes.Equal(page[:n], zeros[:n]) { // up to 64 MiB at each start: a comparison by bytes would be slow
			return fmt.Errorf("the record at byte %d is damaged, and it isn't the last one", offset)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return datadir.Cause(err)
		}
	}
}

// truncatedBytes returns how many bytes at the start of r can belong to a record that was truncated.
//
// A record has its length twice: before it, and in the lengths of its fields. A crash cannot garble
// these lengths, since none of them crosses a sector boundary. If both lengths agree, they are the
// length of the record. Otherwise the record ends where its fields stop making sense.
func truncatedBytes(r io.ReaderAt) (int64, error) {
	start := make([]byte, frameHeader+32) // the three fields' own bytes take 2, 6 and at most 11
	if n, err := r.ReadAt(start, 0); err != nil {
		if !errors.Is(err, io.EOF) {
			return 0, datadir.Cause(err)
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
