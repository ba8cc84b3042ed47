package services

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Errors have kube-apiserver's texts.
var (
	errFull          = errors.New("range is full")
	errIPTaken       = errors.New("provided IP is already allocated")
	errNoRange       = errors.New("the provided network does not match the current range")
	errPortTaken     = errors.New("provided port is already allocated")
	errPortNotInside = errors.New("provided port is not in the valid range. The range of valid ports is 30000-32767")
)

// writeLimit is longer than any write: the server ends requests after a minute.
const writeLimit = 90 * time.Second

// address is what only one Service has: a cluster IP, or a node port of all protocols.
type address struct {
	ip   netip.Addr
	port int32
}

// allocator chooses addresses that no Service has. It reads all Services before it chooses, so the storage alone says which are
// taken: after a restart, a restored backup, or a write of another server. It remembers its choices until it has read them, or
// until the write was refused or must have ended. Two servers on one etcd can give the same address.
type allocator struct {
	ranges Ranges
	// list returns the newest state of all Services.
	list func(context.Context) (*corev1.ServiceList, error)
	// turn has one element while a request chooses.
	turn chan struct{}

	mu sync.Mutex
	// chosen are the addresses whose writes may be under way, and when they must have ended.
	chosen map[address]time.Time
}

func newAllocator(ranges Ranges, list func(context.Context) (*corev1.ServiceList, error)) *allocator {
	return &allocator{ranges: ranges, list: list, turn: make(chan struct{}, 1), chosen: map[address]time.Time{}}
}

// choose calls decide, which takes addresses. It returns a function that is called with false if the write is refused. The
// addresses of a dry run are free afterwards.
func (a *allocator) choose(ctx context.Context, dryRun bool, decide func(*choice) error) (finish func(context.Context, bool), err error) {
	c := &choice{allocator: a, ctx: ctx}
	defer c.end()
	if err := decide(c); err != nil {
		return nil, err
	}
	if dryRun {
		c.taken = nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range c.taken {
		a.chosen[one] = time.Now().Add(writeLimit)
	}
	return func(_ context.Context, written bool) {
		if !written {
			a.forget(c.taken)
		}
	}, nil
}

func (a *allocator) forget(addresses []address) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range addresses {
		delete(a.chosen, one)
	}
}

// underWay returns the addresses whose writes may be under way.
func (a *allocator) underWay() map[address]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, addresses := time.Now(), map[address]bool{}
	for one, end := range a.chosen {
		if now.After(end) {
			delete(a.chosen, one)
			continue
		}
		addresses[one] = true
	}
	return addresses
}

// choice is the turn of one request. It begins when the first address is needed.
type choice struct {
	allocator *allocator
	ctx       context.Context
	// used are the addresses that are not free; nil before the turn.
	used  map[address]bool
	taken []address
}

// begin waits for the turn, and reads which addresses are used.
func (c *choice) begin() error {
	if c.used != nil {
		return nil
	}
	select {
	case c.allocator.turn <- struct{}{}:
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	// A write that is not under way any more is in the list, since the list begins afterwards.
	c.used = c.allocator.underWay()
	services, err := c.allocator.list(c.ctx)
	if err != nil {
		return err
	}
	var written []address
	for i := range services.Items {
		written = append(written, addressesOf(&services.Items[i])...)
	}
	c.allocator.forget(written)
	for _, one := range written {
		c.used[one] = true
	}
	return nil
}

// end ends the turn.
func (c *choice) end() {
	if c.used != nil {
		<-c.allocator.turn
	}
}

// take reports whether an address was free; it is not any more.
func (c *choice) take(a address) (bool, error) {
	if err := c.begin(); err != nil || c.used[a] {
		return false, err
	}
	c.used[a] = true
	c.taken = append(c.taken, a)
	return true, nil
}

// next takes one of size addresses: a random one behind the reserved ones at the beginning, or of these if no other is free.
func (c *choice) next(size, reserved uint64, at func(index uint64) address) (address, error) {
	for _, band := range [][2]uint64{{reserved, size}, {0, reserved}} {
		n := band[1] - band[0]
		if n == 0 {
			continue
		}
		start := rand.Uint64N(n)
		for i := range n {
			one := at(band[0] + (start+i)%n)
			if ok, err := c.take(one); ok || err != nil {
				return one, err
			}
		}
	}
	return address{}, errFull
}

// takeIP takes a cluster IP.
func (c *choice) takeIP(ip netip.Addr) error {
	if prefix, ok := c.allocator.ranges.around(ip); !ok || !isUsable(prefix, ip) {
		return errNoRange
	}
	free, err := c.take(address{ip: ip})
	if err == nil && !free {
		return errIPTaken
	}
	return err
}

// nextIP takes a cluster IP of a range.
func (c *choice) nextIP(prefix netip.Prefix) (netip.Addr, error) {
	one, err := c.next(usable(prefix), step(sizeOf(prefix), 16, 256), func(index uint64) address {
		return address{ip: addressAt(prefix, index)}
	})
	return one.ip, err
}

// takePort takes a node port.
func (c *choice) takePort(port int32) error {
	if port < firstNodePort || port >= firstNodePort+nodePorts {
		return errPortNotInside
	}
	free, err := c.take(address{port: port})
	if err == nil && !free {
		return errPortTaken
	}
	return err
}

// nextPort takes a node port.
func (c *choice) nextPort() (int32, error) {
	one, err := c.next(nodePorts, step(nodePorts, 32, 128), func(index uint64) address {
		return address{port: firstNodePort + int32(index)}
	})
	return one.port, err
}

// addressesOf returns the addresses of a stored Service.
func addressesOf(s *corev1.Service) (addresses []address) {
	for _, ip := range append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...) {
		if parsed, err := netip.ParseAddr(ip); err == nil {
			addresses = append(addresses, address{ip: parsed})
		}
	}
	for _, port := range s.Spec.Ports {
		if port.NodePort != 0 {
			addresses = append(addresses, address{port: port.NodePort})
		}
	}
	if s.Spec.HealthCheckNodePort != 0 {
		addresses = append(addresses, address{port: s.Spec.HealthCheckNodePort})
	}
	return addresses
}
