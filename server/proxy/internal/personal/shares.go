package personal

import (
	"container/heap"
	"container/list"
	"time"
)

// shares finds the view that is forgotten for a new one, without a look at all others. [Views].mu is locked for its
// methods.
//
// It is one that nobody has used for some time; or else one of the owner with most views, and of its users the one
// with most, if the new view's has fewer. So each owner has a share, and each of its users a part of that: watches
// end of those above it. The user with most views may only replace views that it does not use.
type shares struct {
	unused list.List // the views that are not in use: the one that was used longest ago is the first
	owners holders
	byName map[string]*holder // the owners
}

// holder is an owner of views, readpath.Flow, or one of its users.
type holder struct {
	name   string
	views  int
	idle   int                // of views, that are not in use
	place  int                // in its heap
	users  holders            // of an owner
	byName map[string]*holder // them
	// The views of a user, in the order in which they were used, and began to be.
	unused, inUse list.List
}

// holders are a heap: the first has most views, and some that are not in use if any of those has.
type holders []*holder

// Len implements heap.Interface.
func (h holders) Len() int { return len(h) }

// Less implements heap.Interface.
func (h holders) Less(i, j int) bool {
	if h[i].views != h[j].views {
		return h[i].views > h[j].views
	}
	return h[i].idle > 0 && h[j].idle == 0
}

// Swap implements heap.Interface.
func (h holders) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *holders) Push(x any) {
	x.(*holder).place = len(*h)
	*h = append(*h, x.(*holder))
}

// Pop implements heap.Interface.
func (h *holders) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
}

// count adds to the views of a holder of a name, and to those that are not in use. One without views is forgotten.
func (h *holders) count(byName map[string]*holder, name string, views, idle int) *holder {
	of := byName[name]
	if of == nil {
		of = &holder{name: name, byName: map[string]*holder{}}
		byName[name] = of
		heap.Push(h, of)
	}
	of.views, of.idle = of.views+views, of.idle+idle
	if heap.Fix(h, of.place); of.views == 0 {
		heap.Remove(h, of.place)
		delete(byName, name)
	}
	return of
}

// count adds to the views of a view's owner and user, which it returns.
func (s *shares) count(w *View, views, idle int) *holder {
	of := s.owners.count(s.byName, w.owner, views, idle)
	return of.users.count(of.byName, w.subject.User.GetName(), views, idle)
}

// add adds a view, which is in use.
func (s *shares) add(w *View) {
	w.holder = s.count(w, 1, 0)
	w.place = w.holder.inUse.PushBack(w)
}

func (s *shares) remove(w *View) {
	s.use(w, true)
	w.holder.inUse.Remove(w.place)
	s.count(w, -1, 0)
}

// use records that a view is in use, or no longer.
func (s *shares) use(w *View, inUse bool) {
	w.holder.inUse.Remove(w.place)
	if w.idle != nil {
		w.holder.unused.Remove(w.place)
		s.unused.Remove(w.idle)
		w.idle = nil
		s.count(w, 0, -1)
	}
	if inUse {
		w.place = w.holder.inUse.PushBack(w)
		return
	}
	w.place, w.idle = w.holder.unused.PushBack(w), s.unused.PushBack(w)
	s.count(w, 0, 1)
}

// yielding returns the view that is forgotten for a new one, nil if there is none.
func (s *shares) yielding(to *View, now time.Time) *View {
	if oldest := first(&s.unused); oldest != nil && oldest.abandoned(now) {
		return oldest
	}
	own, views := s.byName[to.owner], 0
	if own != nil {
		views = own.views
	}
	if len(s.owners) > 0 && s.owners[0].views > views+1 {
		return s.owners[0].users[0].oldest()
	}
	if own == nil {
		return nil
	}
	user := own.byName[to.subject.User.GetName()]
	if views = 0; user != nil {
		views = user.views
	}
	if own.users[0].views > views+1 {
		return own.users[0].oldest()
	}
	if user == nil {
		return nil
	}
	return first(&user.unused)
}

// oldest returns the view of a user that is forgotten first.
func (h *holder) oldest() *View {
	if unused := first(&h.unused); unused != nil {
		return unused
	}
	return first(&h.inUse)
}

// first returns the first of some views, nil if there is none.
func first(of *list.List) *View {
	if of.Len() == 0 {
		return nil
	}
	return of.Front().Value.(*View)
}
