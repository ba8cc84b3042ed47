package stream

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"iter"
	"math/bits"
	"slices"
	"strings"

	"github.com/keepwatch/keepwatch"
)

// Entries is the index of a stream whose consumer commits pieces: an entry for each key. An entry takes the length of
// its key and about 45 bytes, in whose place a map of Go takes 230, and the garbage collector sees one pointer for some
// eight of them. It is not for concurrent use. A nil *Entries is empty, and cannot be changed.
type Entries struct {
	seed maphash.Seed
	// buckets have the texts of entries, one behind the other. They are split one at a time, in turn (linear hashing),
	// so that none has many entries, and no change moves more than one bucket's.
	buckets [][]byte
	count   int
	serial  uint64 // the last one that Put gave to an entry
}

// entriesPerBucket is the mean number of entries of a bucket, above which one is split. A lookup passes over half of
// them.
const entriesPerBucket = 8

// NewEntries returns an empty index.
func NewEntries() *Entries { return &Entries{seed: maphash.MakeSeed(), buckets: make([][]byte, 1)} }

// Len returns the number of entries.
func (x *Entries) Len() int {
	if x == nil {
		return 0
	}
	return x.count
}

// Put adds an entry, or replaces that of its key.
func (x *Entries) Put(e Entry) {
	x.serial++
	x.set(e.Key.String(), record{serial: x.serial, uid: e.UID, revision: e.Revision, rendition: e.Rendition})
}

// Remove removes the entry of a key, if there is one.
func (x *Entries) Remove(key keepwatch.Key) { x.remove(key.String()) }

// All returns the entries in no order. They must not be changed meanwhile.
func (x *Entries) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for key, text := range x.all() {
			r := decodeEntry(text)
			if !yield(Entry{parseKey(string(key)), r.uid, r.revision, r.rendition}) {
				return
			}
		}
	}
}

// get returns the record of a key, without metadata.
func (x *Entries) get(key string) (record, bool) {
	for rest := x.buckets[x.bucket(key)]; len(rest) > 0; {
		found, text, next := nextEntry(rest)
		if string(found) == key {
			return decodeEntry(text), true
		}
		rest = next
	}
	return record{}, false
}

// set adds the record of a key, or replaces it.
func (x *Entries) set(key string, r record) {
	x.remove(key)
	n := x.bucket(key)
	x.buckets[n] = appendEntry(x.buckets[n], key, r)
	if x.count++; x.count > entriesPerBucket*len(x.buckets) {
		x.split()
	}
}

func (x *Entries) remove(key string) {
	bucket := &x.buckets[x.bucket(key)]
	for rest := *bucket; len(rest) > 0; {
		found, _, next := nextEntry(rest)
		if string(found) == key {
			x.count--
			*bucket = slices.Delete(*bucket, len(*bucket)-len(rest), len(*bucket)-len(next))
			if len(*bucket) < cap(*bucket)/2 {
				*bucket = slices.Clone(*bucket)
			}
			return
		}
		rest = next
	}
}

// bucket returns the number of the bucket of a key. While their number is no power of two, some buckets have the keys
// of those that are missing, too.
func (x *Entries) bucket(key string) int {
	hash, n := maphash.String(x.seed, key), len(x.buckets)
	power := 1 << bits.Len(uint(n-1)) // the least one that is not less than n
	if number := int(hash & uint64(power-1)); number < n {
		return number
	}
	return int(hash & uint64(power/2-1))
}

// split adds a bucket, and moves the entries into it that are its own: one other bucket has them.
func (x *Entries) split() {
	added := len(x.buckets)
	divided := added - 1<<(bits.Len(uint(added))-1)
	x.buckets = append(x.buckets, nil)
	var kept, moved []byte
	for rest := x.buckets[divided]; len(rest) > 0; {
		key, _, next := nextEntry(rest)
		text := rest[:len(rest)-len(next)]
		if x.bucket(string(key)) == added {
			moved = append(moved, text...)
		} else {
			kept = append(kept, text...)
		}
		rest = next
	}
	x.buckets[divided], x.buckets[added] = slices.Clone(kept), slices.Clone(moved)
}

// unseen returns keys whose serial is not in seen, at most limit, in order.
func (x *Entries) unseen(seen serials, limit int) (keys []string) {
	for key, text := range x.all() {
		if serial, _ := binary.Uvarint(text); !seen.has(serial) {
			if keys = append(keys, string(key)); len(keys) == limit {
				break
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// all returns the keys and texts of all entries.
func (x *Entries) all() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, text []byte) bool) {
		if x == nil {
			return
		}
		for _, rest := range x.buckets {
			for len(rest) > 0 {
				key, text, next := nextEntry(rest)
				if !yield(key, text) {
					return
				}
				rest = next
			}
		}
	}
}

// An entry is its length, the key with its length, and the text that decodeEntry reads.

// nextEntry returns the key and the text of the first entry of a bucket, and the entries behind it.
func nextEntry(bucket []byte) (key, text, next []byte) {
	length, n := binary.Uvarint(bucket)
	entry, next := bucket[n:n+int(length)], bucket[n+int(length):]
	length, n = binary.Uvarint(entry)
	return entry[n : n+int(length)], entry[n+int(length):], next
}

// appendEntry appends an entry to a bucket. A bucket that has no room for it becomes just as large as is needed.
func appendEntry(bucket []byte, key string, r record) []byte {
	entry := appendString(make([]byte, 0, 128), key)
	entry = binary.AppendUvarint(entry, r.serial)
	entry = binary.AppendUvarint(entry, uint64(r.revision))
	entry = binary.BigEndian.AppendUint64(entry, r.rendition.Sum)
	entry = binary.AppendUvarint(entry, r.rendition.Number)
	entry = appendUID(entry, r.uid)
	if size := len(bucket) + binary.MaxVarintLen16 + len(entry); size > cap(bucket) {
		bucket = append(slices.Grow([]byte(nil), size), bucket...)
	}
	return append(binary.AppendUvarint(bucket, uint64(len(entry))), entry...)
}

// decodeEntry returns the record of the text of an entry, without metadata.
func decodeEntry(text []byte) record {
	in := decoder{buf: text}
	r := record{serial: in.uvarint(), revision: keepwatch.Revision(in.uvarint())}
	r.rendition.Sum, in.buf = binary.BigEndian.Uint64(in.buf), in.buf[8:]
	r.rendition.Number = in.uvarint()
	r.uid = decodeUID(in.buf)
	return r
}

// A UID is a zero and its bytes if it is written as Kubernetes writes them, and otherwise a one and its text.

func appendUID(text []byte, uid keepwatch.UID) []byte {
	if len(uid) == 36 {
		hexadecimal := strings.ReplaceAll(string(uid), "-", "")
		packed, err := hex.AppendDecode(append(text, 0), []byte(hexadecimal))
		if err == nil && len(packed) == len(text)+17 && decodeUID(packed[len(text):]) == uid {
			return packed
		}
	}
	return append(append(text, 1), uid...)
}

func decodeUID(text []byte) keepwatch.UID {
	if text[0] == 1 {
		return keepwatch.UID(text[1:])
	}
	uid := make([]byte, 0, 37)
	for _, part := range [][]byte{text[1:5], text[5:7], text[7:9], text[9:11], text[11:]} {
		uid = append(hex.AppendEncode(uid, part), '-')
	}
	return keepwatch.UID(uid[:36])
}
