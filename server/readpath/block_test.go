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

// piece describes random data and how it is made into a block.
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
	const longest = 1 << 18
	length := rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 100), rapid.IntRange(0, longest),
		rapid.SampledFrom([]int{storedBlockSize, storedBlockSize + 1, 2 * storedBlockSize, longest}))
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) piece {
		return piece{rapid.Uint64().Draw(t, "seed"), length.Draw(t, "length"), rapid.Bool().Draw(t, "compressible"),
			rapid.Bool().Draw(t, "stored")}
	}), 0, 12)
}

// Any sequence of blocks is one gzip member.
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
			t.Errorf("the length of the member is %d, want %d", m.length, raw.Len())
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
				t.Fatalf("%s: %d bytes follow the member", name, rest.Len())
			}
		}
	})
}

// A block does not change when its input does.
func TestBlocksDoNotShareTheirInput(t *testing.T) {
	for name, make := range map[string]func([]byte) *block{"compressed": compress, "stored": stored, "edge": edgeBlock} {
		raw := bytes.Repeat([]byte("keepwatch"), 1000)
		b := make(raw)
		before := bytes.Clone(b.deflated)
		clear(raw)
		if compress(randomBytes(1, 5000)); !bytes.Equal(before, b.deflated) {
			t.Errorf("%s: the block changed", name)
		}
	}
}

// The length of a member is stored modulo 4 GiB.
func TestLongMembersWrap(t *testing.T) {
	var packed bytes.Buffer
	m := gzipMember{w: &packed, length: 5<<32 + 7, sum: 0xdeadbeef}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	end := packed.Bytes()[len(lastBlock):]
	if sum, length := binary.LittleEndian.Uint32(end), binary.LittleEndian.Uint32(end[4:]); sum != 0xdeadbeef ||
		length != 7 {
		t.Errorf("sum %08x, length %d", sum, length)
	}
}

// A failed write ends a member.
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

// failing is a writer that fails after a number of writes.
type failing struct{ after int }

func (f *failing) Write(p []byte) (int, error) {
	if f.after == 0 {
		return 0, errGone
	}
	f.after--
	return len(p), nil
}
