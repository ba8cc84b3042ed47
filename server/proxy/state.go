package proxy

import "github.com/keepwatch/keepwatch/server/proxy/internal/index"

// State is an index of the cached resources on disk, without their contents: keys, UIDs, revisions, and hashes of the
// contents. With it a proxy that starts again compares its first list of a resource with what it had, so that its
// clients' watches resume. It has nothing of Secrets.
type State struct{ file *index.File }

// OpenState opens the index in a directory, or creates it. It is locked until Close or the end of the process. A file
// that is damaged or of another version is replaced: a proxy can do without it. OpenState returns an error for an index
// that is in use, and for a directory that can't be written.
func OpenState(dir string) (*State, error) {
	file, err := index.Open(dir)
	if err != nil {
		return nil, err
	}
	return &State{file}, nil
}

// Close closes the file.
func (s *State) Close() error { return s.file.Close() }

// index returns the index, nil for nil.
func (s *State) index() *index.Index {
	if s == nil {
		return nil
	}
	return index.New(s.file)
}
