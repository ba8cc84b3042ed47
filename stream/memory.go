package stream

import (
	"slices"

	"github.com/keepwatch/keepwatch"
)

// memory is a state that ends with the process.
type memory struct {
	records map[string][]byte
	at      position
}

// InMemory makes an empty state that is forgotten with the process.
func InMemory() State { return &memory{records: map[string][]byte{}} }

func (m *memory) Close() error       { return nil }
func (m *memory) position() position { return m.at }

// announced and announce have nothing to do: what a crash leaves open is lost
// with everything else.
func (m *memory) announced() ([]announcement, error)                { return nil, nil }
func (m *memory) announce([]announcement, keepwatch.Revision) error { return nil }

func (m *memory) get(key string) (record, bool, error) {
	text, ok := m.records[key]
	if !ok {
		return record{}, false, nil
	}
	r, err := decodeRecord(text)
	return r, true, err
}

func (m *memory) unseen(seen serials) ([]string, error) {
	var keys []string
	for key, text := range m.records {
		serial, err := serialOf(text)
		if err != nil {
			return nil, err
		}
		if !seen.has(serial) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

func (m *memory) commit(piece commit) error {
	for key, r := range piece.records {
		if r == nil {
			delete(m.records, key)
		} else {
			m.records[key] = r.encode()
		}
	}
	m.at = piece.position
	return nil
}
