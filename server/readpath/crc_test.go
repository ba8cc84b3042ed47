package readpath

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// randomBytes are the same ones for a seed.
func randomBytes(seed uint64, n int) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	b := make([]byte, n)
	_, _ = r.Read(b) // never fails
	return b
}

// What is combined of two pieces' sums is the sum of both in a row.
func TestCombine(t *testing.T) {
	lengths := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 1<<20))
	rapid.Check(t, func(t *rapid.T) {
		whole := randomBytes(rapid.Uint64().Draw(t, "seed"), lengths.Draw(t, "first")+lengths.Draw(t, "second"))
		cut := rapid.IntRange(0, len(whole)).Draw(t, "cut")
		first, second := crc32.ChecksumIEEE(whole[:cut]), crc32.ChecksumIEEE(whole[cut:])
		if got, want := combine(first, second, int64(len(whole)-cut)), crc32.ChecksumIEEE(whole); got != want {
			t.Fatalf("%d and %d bytes: %08x, want %08x", cut, len(whole)-cut, got, want)
		}
	})
}

// Pieces of which no machine has the bytes: one after another and by doubling, it is
// the same sum.
func TestCombineHugePieces(t *testing.T) {
	const piece, pieces = 1 << 20, 1 << 13 // 8 GiB
	one := crc32.ChecksumIEEE(randomBytes(1, piece))
	var inARow uint32
	for range pieces {
		inARow = combine(inARow, one, piece)
	}
	doubled, length := one, int64(piece)
	for length < piece*pieces {
		doubled, length = combine(doubled, doubled, length), 2*length
	}
	if inARow != doubled {
		t.Errorf("8 GiB: %08x in a row, %08x by doubling", inARow, doubled)
	}
}

// It does not matter which of three pieces are combined first.
func TestCombineIsAssociative(t *testing.T) {
	lengths := rapid.Int64Range(0, 1<<61)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := rapid.Uint32().Draw(t, "a"), rapid.Uint32().Draw(t, "b"), rapid.Uint32().Draw(t, "c")
		lengthB, lengthC := lengths.Draw(t, "length of b"), lengths.Draw(t, "length of c")
		left := combine(combine(a, b, lengthB), c, lengthC)
		right := combine(a, combine(b, c, lengthC), lengthB+lengthC)
		if left != right {
			t.Fatalf("%08x and %08x", left, right)
		}
	})
}
