package readpath

import "hash/crc32"

// A CRC-32 without its conditioning is the remainder of a polynomial over GF(2). A word represents a
// polynomial of degree below 32; its highest bit is the coefficient of x^0. Appending n bytes multiplies
// the polynomial by x^(8n).

// times returns the product of two polynomials modulo the CRC's.
func times(a, b uint32) uint32 {
	var product uint32
	for bit := uint32(1) << 31; bit != 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
		}
		b = b>>1 ^ crc32.IEEE*(b&1)
	}
	return product
}

// powers[i] is x^(2^i) modulo the CRC's polynomial. x^(2^32) is x again, since the
// polynomial is primitive.
var powers = func() (p [32]uint32) {
	p[0] = 1 << 30 // x
	for i := range p[1:] {
		p[i+1] = times(p[i], p[i])
	}
	return p
}()

// combine returns the CRC-32 of two concatenated parts, given theirs and the length of the second.
func combine(first, second uint32, length int64) uint32 {
	shift := uint32(1) << 31                                  // 1
	for i, n := 3, uint64(length); n != 0; i, n = i+1, n>>1 { // 8 = 2^3
		if n&1 != 0 {
			shift = times(powers[i%len(powers)], shift)
		}
	}
	return times(shift, first) ^ second
}
