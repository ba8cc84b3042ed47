package faults

// editor changes the frames of one watch, for the faults that concern the next frames or all
// later ones. The zero value forwards everything.
type editor struct {
	fault   Fault
	delayed []byte // a whole frame that is sent later, or nil
}

// edits reports whether a fault is an editor's.
func (k kind) edits() bool {
	switch k {
	case reorder, skip, oversized, unknownType, earlyBookmark, lateBookmarks, noBookmarks, noInitialEnd:
		return true
	}
	return false
}

// frame returns the frames to send in place of one, and whether the fault had an effect on it.
// A frame that cannot be parsed is forwarded.
func (e *editor) frame(f *framing, whole, message []byte) (send [][]byte, injected bool) {
	unchanged := [][]byte{whole}
	if e.fault.kind == none || message == nil {
		return unchanged, false
	}
	parsed, err := f.parse(message)
	if err != nil {
		return unchanged, false
	}
	if parsed.isBookmark() {
		return e.bookmark(whole, parsed)
	}
	send, err = e.event(f, whole, message, parsed)
	if err != nil || send == nil {
		return unchanged, false
	}
	return send, e.fault.kind == none
}

// bookmark decides about a bookmark.
func (e *editor) bookmark(whole []byte, parsed watchEvent) (send [][]byte, injected bool) {
	switch last := parsed.endsInitialEvents(); {
	case e.fault.kind == noInitialEnd && last, e.fault.kind == noBookmarks && !last:
		return nil, true
	case e.fault.kind == lateBookmarks && !last:
		e.delayed = whole // an earlier one that is still delayed is obsolete
		return nil, true
	case e.fault.kind == reorder: // must not pass an event
		return append(e.rest(), whole), false
	}
	return [][]byte{whole}, false
}

// event returns the frames in place of an event, or nil for no change. A fault of one event is over
// with it.
func (e *editor) event(f *framing, whole, message []byte, parsed watchEvent) (send [][]byte, err error) {
	fault := e.fault
	switch fault.kind {
	case lateBookmarks:
		if e.delayed == nil {
			return nil, nil
		}
		send, e.delayed = [][]byte{whole, e.delayed}, nil
		return send, nil
	case noBookmarks, noInitialEnd:
		return nil, nil
	case reorder:
		if e.delayed == nil {
			e.delayed = whole
			return [][]byte{}, nil
		}
		send, e.delayed = [][]byte{whole, e.delayed}, nil
		e.fault = None
		return send, nil
	}
	e.fault = None
	var added []byte
	switch fault.kind {
	case skip:
		return [][]byte{}, nil
	case oversized:
		return [][]byte{f.wrap(f.pad(message, int(fault.bytes)))}, nil
	case unknownType:
		added, err = f.retype(message, unknownEventType)
	case earlyBookmark:
		added, err = f.encoding.bookmark(parsed)
	}
	return [][]byte{f.wrap(added), whole}, err
}

// rest returns the frame that is still delayed when the watch ends.
func (e *editor) rest() [][]byte {
	if e.delayed == nil {
		return nil
	}
	delayed := e.delayed
	e.delayed = nil
	return [][]byte{delayed}
}
