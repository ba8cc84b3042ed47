package services

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Errors have kube-apiserver's texts.
var (
	errFull          = errors.New("range is full")
	errIPTaken       = errors.New("provided IP is already allocated")
	errNoRange       = errors.New("the provided network does not match the current range")
	errPortTaken     = errors.New("provided port is already allocated")
	errPortNotInside = errors.New("provided port is not in the valid range. The range of valid ports is 30000-32767")
)

const (
	// writeLimit is longer than any write: the server ends requests after a minute.
	writeLimit = 90 * time.Second
	// lookups is the number of addresses that are looked up in the storage one by one before all Services are read.
	lookups = 8
)

// address is what only one Service has: a cluster IP, or a node port of all protocols.
type address struct {
	ip   netip.Addr
	port int32
}

// String returns the value of [Index] for an address.
func (a address) String() string {
	if a.port != 0 {
		return ":" + strconv.Itoa(int(a.port))
	}
	return a.ip.String()
}

// Find returns the newest state of the Services that have an address, or of all if the address is empty. It may return others, too.
type Find func(ctx context.Context, address string) (*corev1.ServiceList, error)

// allocator chooses addresses that no Service has. It reads the stored Services before it chooses, so the storage alone says which
// are taken: after a restart, a restored backup, or a write of another server. It remembers its choices until they are written or
// refused. Two servers on one etcd can choose the same address.
type allocator struct {
	ranges Ranges
	find   Find
	// turn has one element while a request chooses.
	turn chan struct{}

	mu sync.Mutex
	// chosen are the addresses whose writes may be under way.
	chosen map[address]chosen
}

// chosen is for whom an address was chosen, and when the write must have ended.
type chosen struct {
	service types.NamespacedName
	end     time.Time
}

func newAllocator(ranges Ranges, find Find) *allocator {
	return &allocator{ranges: ranges, find: find, turn: make(chan struct{}, 1), chosen: map[address]chosen{}}
}

// choose calls decide, which takes addresses for a Service. It returns a function that is called with false if the write is refused.
// The addresses of a dry run are free afterwards.
func (a *allocator) choose(ctx context.Context, s *corev1.Service, dryRun bool, decide func(*choice) error) (finish func(context.Context, bool), err error) {
	c := &choice{allocator: a, ctx: ctx, service: nameOf(s)}
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
		a.chosen[one] = chosen{c.service, time.Now().Add(writeLimit)}
	}
	return func(_ context.Context, written bool) {
		if !written {
			a.forget(c.service, c.taken)
		}
	}, nil
}

// forget ends the memory of addresses that were chosen for a Service.
func (a *allocator) forget(service types.NamespacedName, addresses []address) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range addresses {
		if a.chosen[one].service == service {
			delete(a.chosen, one)
		}
	}
}

// underWay returns the addresses that other Services may be about to have.
func (a *allocator) underWay(service types.NamespacedName) map[address]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, addresses := time.Now(), map[address]bool{}
	for one, c := range a.chosen {
		switch {
		case now.After(c.end):
			delete(a.chosen, one)
		case c.service != service: // of two writes of one Service, one at most succeeds
			addresses[one] = true
		}
	}
	return addresses
}

// choice is the turn of one request. It begins when the first address is needed.
type choice struct {
	allocator *allocator
	ctx       context.Context
	service   types.NamespacedName
	// used are addresses that are not free; nil before the turn.
	used map[address]bool
	// looked is the number of lookups. After the last one, used has the addresses of all Services.
	looked int
	taken  []address
}

// begin waits for the turn. What is not under way then is stored, or will be free: the storage is read afterwards.
func (c *choice) begin() error {
	if c.used != nil {
		return nil
	}
	select {
	case c.allocator.turn <- struct{}{}:
		c.used = c.allocator.underWay(c.service)
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
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
	if err := c.look(a); err != nil || c.used[a] {
		return false, err
	}
	c.used[a] = true
	c.taken = append(c.taken, a)
	return true, nil
}

// look reads whether a Service has an address. After some lookups, it reads all addresses: the range may be nearly full.
func (c *choice) look(a address) error {
	if c.looked > lookups {
		return nil
	}
	value := ""
	if c.looked++; c.looked <= lookups {
		value = a.String()
	}
	services, err := c.allocator.find(c.ctx, value)
	if err != nil {
		return err
	}
	for i := range services.Items {
		for _, one := range addressesOf(&services.Items[i]) {
			c.used[one] = true
		}
	}
	return nil
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

func nameOf(s *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
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
