package readpath

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// crowd is who comes for turns, each in a goroutine of a synctest bubble. It is named
// by its flow and a number.
type crowd struct {
	turns *turns

	mu    sync.Mutex
	in    []string          // who was let in, in order
	out   map[string]error  // who has given up, and why
	leave map[string]func() // of who is in
	stop  map[string]context.CancelFunc
}

func newCrowd(room int) *crowd {
	return &crowd{turns: newTurns(int64(room) * perList), out: map[string]error{}, leave: map[string]func(){}, stop: map[string]context.CancelFunc{}}
}

// come returns when who comes is in, waits, or was sent away.
func (c *crowd) come(flow string, number int) {
	name := fmt.Sprint(flow, number)
	ctx, cancel := context.WithCancel(context.Background())
	c.stop[name] = cancel
	go func() {
		leave, err := c.turns.take(ctx, flow)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.out[name] = err
			return
		}
		c.in = append(c.in, name)
		c.leave[name] = leave
	}()
	synctest.Wait()
}

// goes is done with its turn.
func (c *crowd) goes(name string) {
	c.left(name)()
	synctest.Wait()
}

// left takes out how somebody leaves.
func (c *crowd) left(name string) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer delete(c.leave, name)
	return c.leave[name]
}

// sentAway tells why somebody was, and how many were.
func (c *crowd) sentAway(name string) (all int, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.out), c.out[name]
}

// givesUp does not wait any longer.
func (c *crowd) givesUp(name string) {
	c.stop[name]()
	synctest.Wait()
}

// disperse lets all give up who wait and all go who are in, and reports what is left.
func (c *crowd) disperse(room int) error {
	for _, stop := range c.stop {
		stop()
	}
	synctest.Wait()
	for name := range c.leave {
		c.goes(name)
	}
	if t := c.turns; t.free != int64(room)*perList || t.waiting != 0 || len(t.flows) != 0 || len(t.next) != 0 {
		return fmt.Errorf("left: room for %d of %d bytes, %d waiting, flows %v, next %v", t.free, int64(room)*perList, t.waiting, t.flows, t.next)
	}
	return nil
}

func TestNoMoreAreInThanThereIsRoomFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(2)
		for i := range 5 {
			c.come("a", i)
		}
		if want := []string{"a0", "a1"}; !slices.Equal(c.in, want) {
			t.Errorf("in are %v, want %v", c.in, want)
		}
		c.goes("a1")
		c.goes("a0")
		if want := []string{"a0", "a1", "a2", "a3"}; !slices.Equal(c.in, want) {
			t.Errorf("in were %v, want %v", c.in, want)
		}
		if err := c.disperse(2); err != nil {
			t.Error(err)
		}
	})
}

// One who asks a hundred times does not keep out another who asks once.
func TestFlowsAreLetInByTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(1)
		for i := range 5 {
			c.come("a", i)
		}
		c.come("b", 0)
		c.come("c", 0)
		c.come("b", 1)
		for i := range 8 {
			c.goes(c.in[i])
		}
		if want := []string{"a0", "a1", "b0", "c0", "a2", "b1", "a3", "a4"}; !slices.Equal(c.in, want) {
			t.Errorf("in were %v, want %v", c.in, want)
		}
		if err := c.disperse(1); err != nil {
			t.Error(err)
		}
	})
}

// Who comes and gives up again and again wins nothing by it, and leaves nothing behind.
func TestGivingUpLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(1)
		c.come("a", 0)
		for i := range 100 {
			name := fmt.Sprint("b", i)
			c.come("b", i)
			c.givesUp(name)
			if _, err := c.sentAway(name); !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if len(c.turns.next) != 0 || len(c.turns.flows) != 0 {
			t.Errorf("of who gave up %d turns and %d flows are left", len(c.turns.next), len(c.turns.flows))
		}
		for i := range 3 {
			c.come("b", 100+i)
		}
		for i := range 3 {
			c.come("c", i)
		}
		for i := range 7 {
			c.goes(c.in[i])
		}
		if want := []string{"a0", "b100", "c0", "b101", "c1", "b102", "c2"}; !slices.Equal(c.in, want) {
			t.Errorf("in were %v, want %v", c.in, want)
		}
		if err := c.disperse(1); err != nil {
			t.Error(err)
		}
	})
}

// Who has waited for too long is told to come back, and so is who finds a long queue.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(1)
		c.come("a", 0)
		for i := range queueLength {
			c.come("b", i)
		}
		c.come("c", 0)
		if all, err := c.sentAway("c0"); !errors.Is(err, errBusy) || all != 1 {
			t.Errorf("behind %d others: %v; %d were sent away", queueLength, err, all)
		}
		<-time.After(queueTime - time.Nanosecond)
		synctest.Wait()
		if all, _ := c.sentAway("c0"); all != 1 {
			t.Errorf("%d were sent away before it was time", all-1)
		}
		<-time.After(time.Nanosecond)
		synctest.Wait()
		if all, err := c.sentAway("b0"); all != 1+queueLength || !errors.Is(err, errBusy) {
			t.Errorf("%d were sent away, with %v", all-1, err)
		}
		if err := c.disperse(1); err != nil {
			t.Error(err)
		}
	})
}

// Who is let in at the moment in which it gives up keeps no room, whichever it notices.
func TestGivingUpWhileBeingLetIn(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(1)
			c.come("a", 0)
			c.come("b", 0)
			c.left("a0")()
			c.givesUp("b0")
			if err := c.disperse(1); err != nil {
				t.Error(err)
			}
		})
	}
}

// line is how turns are taken, said simply.
type line struct {
	free  int
	in    []string
	waits map[string][]string // by flow
	order []string            // of flows that wait
}

func (l *line) come(flow, name string) {
	if l.free > 0 {
		l.free--
		l.in = append(l.in, name)
		return
	}
	if len(l.waits[flow]) == 0 {
		l.order = append(l.order, flow)
	}
	l.waits[flow] = append(l.waits[flow], name)
}

func (l *line) goes() {
	if len(l.order) == 0 {
		l.free++
		return
	}
	flow := l.order[0]
	l.order = l.order[1:]
	l.in = append(l.in, l.waits[flow][0])
	if l.waits[flow] = l.waits[flow][1:]; len(l.waits[flow]) > 0 {
		l.order = append(l.order, flow)
	}
}

func (l *line) givesUp(flow, name string) {
	l.waits[flow] = slices.DeleteFunc(l.waits[flow], func(n string) bool { return n == name })
	if len(l.waits[flow]) == 0 {
		l.order = slices.DeleteFunc(l.order, func(f string) bool { return f == flow })
	}
}

// step is what happens next: somebody comes, or one of those who are in or wait goes.
type step struct {
	Kind int // 0 comes, 1 goes, 2 gives up
	Flow string
	Who  int
}

func TestTurnsAreTheLine(t *testing.T) {
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{rapid.IntRange(0, 2).Draw(t, "kind"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "flow"), rapid.IntRange(0, 9).Draw(t, "who")}
	}), 1, 60)
	rapid.Check(t, func(rt *rapid.T) {
		room, todo := rapid.IntRange(1, 3).Draw(rt, "room"), steps.Draw(rt, "steps")
		var failure error
		synctest.Test(t, func(*testing.T) { failure = follow(room, todo) })
		if failure != nil {
			rt.Fatal(failure)
		}
	})
}

// follow takes turns and the line through the same steps, and reports where they part.
func follow(room int, steps []step) error {
	c, l := newCrowd(room), &line{free: room, waits: map[string][]string{}}
	var gone int
	for i, s := range steps {
		switch queue := l.waits[s.Flow]; {
		case s.Kind == 0:
			c.come(s.Flow, i)
			l.come(s.Flow, fmt.Sprint(s.Flow, i))
		case s.Kind == 1 && gone < len(l.in):
			c.goes(c.in[gone])
			l.goes()
			gone++
		case s.Kind == 2 && len(queue) > 0:
			name := queue[s.Who%len(queue)]
			c.givesUp(name)
			l.givesUp(s.Flow, name)
		}
		if !slices.Equal(c.in, l.in) {
			return errors.Join(fmt.Errorf("after step %d: in were %v, want %v", i, c.in, l.in), c.disperse(room))
		}
	}
	return c.disperse(room)
}
