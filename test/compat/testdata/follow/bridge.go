package follow

// What client-go's tests of its shared informer ask.

func (f *Follower) CountHandlers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.handlers)
}

func (f *Follower) Started() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.phase != fresh
}

func (f *Follower) HasHandler(h *Handler) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.handlers[h]
	return ok
}
