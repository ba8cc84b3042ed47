package stream

import (
	"slices"

	"github.com/keepwatch/keepwatch"
)

// memory is a state that is lost with the process.
type memory struct {
	records   map[string][]byte
	committed position
}

// InMemory returns an empty state that is lost with the process.
func InMemory() State { return &memory{records: map[string][]byte{}} }

func (m *memory) Close() error       { return nil }
func (m *memory) position() position { return m.committed }

// announced and announce do nothing: announcements serve the next process, and a state in
// memory has none.
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

func (m *memory) unseen(seen serials, limit int) ([]string, error) {
	var keys []string
	for key, text := range m.records {
		serial, err := serialOf(text)
		if err != nil {
			return nil, err
		}
		if !seen.has(serial) {
			keys = append(keys, key)
		}
		if len(keys) == limit {
			break
		}
	}
	slices.Sort(keys)
	return keys, nil
}

func (m *memory) commit(c commit) error {
	for key, r := range c.records {
		if r == nil {
			delete(m.records, key)
		} else {
			m.records[key] = r.encode()
		}
	}
	m.committed = c.position
	return nil
}
