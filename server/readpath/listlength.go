package readpath

// measureSmall reports whether the response is too small to be compressed and to need admission. It
// encodes no more objects than that takes. If the response is small, its head, tail and length are set.
func (l *listResponse) measureSmall() (bool, error) {
	all, err := l.measure(func([]byte) bool { return l.bodySize <= gzipFrom })
	if err != nil || !all {
		return false, err
	}
	err = l.setHeadAndTail(true)
	return err == nil && l.contentLength <= gzipFrom, err
}

// measureLarge sets the head and tail of a large response, and the length where that encodes nothing
// before the first byte is sent: if all item encodings are cached. Protobuf encodes everything before
// that, since its head contains the size of the body.
func (l *listResponse) measureLarge(gzip bool) error {
	if isProtobuf(l.body.encoding) {
		if err := l.measureAll(); err != nil {
			return err
		}
		return l.setHeadAndTail(true)
	}
	cacheable := !gzip && !isTable(l.body.encoding) && !l.body.pretty
	measured, err := l.measure(func(cached []byte) bool { return cacheable && cached != nil })
	if err != nil {
		return err
	}
	return l.setHeadAndTail(measured)
}

// measureAll sets bodySize, encoding on all cores.
func (l *listResponse) measureAll() error {
	l.bodySize = 0
	for part, err := range l.encodedItems() {
		if err != nil {
			return err
		}
		for _, item := range part.items {
			l.bodySize += l.body.size(item, l.bodySize == 0)
		}
	}
	return nil
}

// measure adds up the sizes of the items as long as more returns true for the next item encoding, which
// is nil if it is not cached. It then encodes the item. It reports whether it measured all items.
func (l *listResponse) measure(more func(cached []byte) bool) (all bool, err error) {
	l.bodySize = 0
	for o := range l.result.All() {
		item := l.cachedItem(o, l.body.encoding, l.use)
		if !more(item) {
			return false, nil
		}
		if item == nil {
			if item, err = l.itemEncoding(o, l.body.encoding, l.use); err != nil {
				return false, err
			}
		}
		l.bodySize += l.body.size(item, l.bodySize == 0)
	}
	return true, nil
}

// setHeadAndTail sets the head and tail, and the length if the whole body is measured.
func (l *listResponse) setHeadAndTail(measured bool) (err error) {
	if l.head, l.tail, err = l.resource.listHeadAndTail(l.result, l.body.encoding, l.bodySize); err != nil {
		return err
	}
	if l.body.pretty {
		l.head, l.tail = l.body.ends(l.head, l.tail, l.result.Len() == 0)
	}
	l.contentLength = 0
	if measured {
		l.contentLength = len(l.head) + l.bodySize + len(l.tail)
	}
	return nil
}
