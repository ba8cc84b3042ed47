package readpath

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	klauspost "github.com/klauspost/compress/gzip"
	"pgregory.net/rapid"
)

// piece is some data, by what it is made of, and how it becomes a block.
type piece struct {
	seed                 uint64
	length               int
	compressible, stored bool
}

func (p piece) raw() []byte {
	if p.compressible {
		return []byte(strings.Repeat(`{"kind":"Pod"},`, p.length/15+1))[:p.length]
	}
	return randomBytes(p.seed, p.length)
}

func pieces() *rapid.Generator[[]piece] {
	const most = 1 << 18
	length := rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 100), rapid.IntRange(0, most),
		rapid.SampledFrom([]int{storedBlockSize, storedBlockSize + 1, 2 * storedBlockSize, most}))
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) piece {
		return piece{rapid.Uint64().Draw(t, "seed"), length.Draw(t, "length"), rapid.Bool().Draw(t, "compressible"), rapid.Bool().Draw(t, "stored")}
	}), 0, 12)
}

// Whatever blocks are put in a row, it is one gzip member that everybody can read.
func TestBlocksAreOneMember(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var packed, raw bytes.Buffer
		m, err := newGzipMember(&packed)
		for _, p := range pieces().Draw(t, "pieces") {
			part := p.raw()
			b := compress(part)
			if p.stored {
				b = stored(part)
			}
			raw.Write(part)
			err = errors.Join(err, m.write(b))
		}
		if err := errors.Join(err, m.close()); err != nil {
			t.Fatal(err)
		}
		if m.length != int64(raw.Len()) {
			t.Errorf("the member says %d bytes, want %d", m.length, raw.Len())
		}
		for name, open := range map[string]func(io.Reader) (io.Reader, error){
			"compress/gzip": func(r io.Reader) (io.Reader, error) {
				one, err := gzip.NewReader(r)
				if err == nil {
					one.Multistream(false)
				}
				return one, err
			},
			"klauspost": func(r io.Reader) (io.Reader, error) {
				one, err := klauspost.NewReader(r)
				if err == nil {
					one.Multistream(false)
				}
				return one, err
			},
		} {
			rest := bytes.NewReader(packed.Bytes())
			r, err := open(rest)
			if err != nil {
				t.Fatal(name, err)
			}
			got, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(got, raw.Bytes()) {
				t.Fatalf("%s: %d bytes, %v; want %d", name, len(got), err, raw.Len())
			}
			if rest.Len() > 0 {
				t.Fatalf("%s: %d bytes behind the member", name, rest.Len())
			}
		}
	})
}

// A block is made once, whatever becomes of the bytes that it was made of.
func TestBlocksDoNotShareTheirInput(t *testing.T) {
	for name, make := range map[string]func([]byte) *block{"compressed": compress, "stored": stored, "wrapped": edgeBlock} {
		raw := bytes.Repeat([]byte("keepwatch"), 1000)
		b := make(raw)
		before := bytes.Clone(b.deflated)
		clear(raw)
		if compress(randomBytes(1, 5000)); !bytes.Equal(before, b.deflated) {
			t.Errorf("%s: it has changed", name)
		}
	}
}

// A member that is longer than 4 GiB tells its length modulo that.
func TestLongMembersWrap(t *testing.T) {
	var packed bytes.Buffer
	m := gzipMember{w: &packed, length: 5<<32 + 7, sum: 0xdeadbeef}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	end := packed.Bytes()[len(lastBlock):]
	if sum, length := binary.LittleEndian.Uint32(end), binary.LittleEndian.Uint32(end[4:]); sum != 0xdeadbeef || length != 7 {
		t.Errorf("sum %08x, length %d", sum, length)
	}
}

// A member ends at the first write that fails.
func TestMembersReturnWriteErrors(t *testing.T) {
	for n := range 3 {
		w := &failing{after: n}
		m, err := newGzipMember(w)
		if err == nil {
			err = m.write(compress([]byte("x")))
		}
		if err == nil {
			err = m.close()
		}
		if !errors.Is(err, errGone) {
			t.Errorf("write %d fails: %v", n, err)
		}
	}
}

var errGone = errors.New("gone")

// failing is a writer that fails after some writes.
type failing struct{ after int }

func (f *failing) Write(p []byte) (int, error) {
	if f.after == 0 {
		return 0, errGone
	}
	f.after--
	return len(p), nil
}
