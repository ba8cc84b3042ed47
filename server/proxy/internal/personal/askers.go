package personal

import "sync"

// A view asks about reviewsOfView namespaces at a time, as long as it has further askers beside its own. There are
// moreAskers of them.
const reviewsOfView, moreAskers = 8, 64

// askers are the further askers of all views. The owners whose views are being decided have like shares. It is safe
// for concurrent use.
type askers struct {
	mu     sync.Mutex
	free   int
	views  map[string]int // that are being decided, by owner
	taking map[string]int // further askers, by owner
}

func newAskers() *askers {
	return &askers{free: moreAskers, views: map[string]int{}, taking: map[string]int{}}
}

// begin and end enclose the decision of a view.
func (a *askers) begin(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.views[owner]++
}

func (a *askers) end(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	countDown(a.views, owner)
}

// take takes one, and reports false if there is none, or if the owner has its share of them. release ends that.
func (a *askers) take(owner string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.free == 0 || a.taking[owner] >= max(1, moreAskers/len(a.views)) {
		return false
	}
	a.free--
	a.taking[owner]++
	return true
}

func (a *askers) release(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free++
	countDown(a.taking, owner)
}

func countDown(in map[string]int, name string) {
	if in[name]--; in[name] == 0 {
		delete(in, name)
	}
}
