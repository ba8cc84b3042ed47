package services

import (
	"context"
	"errors"
	"fmt"
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
	errFull      = errors.New("range is full")
	errIPTaken   = errors.New("provided IP is already allocated")
	errNoRange   = errors.New("the provided network does not match the current range")
	errPortTaken = errors.New("provided port is already allocated")
)

const (
	// writeLimit is longer than any write: the server ends requests after a minute.
	writeLimit = 90 * time.Second
	// lookups is the number of addresses that may be found used, one by one, before all Services are read.
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

// Find returns the newest state of the Services that have an address, or of all if the address is empty. It may return
// others, too.
type Find func(ctx context.Context, address string) (*corev1.ServiceList, error)

// allocator chooses addresses that no Service has. It reads the stored Services before it chooses, so the storage alone
// says which are taken: after a restart, a restored backup, or a write of another server. It remembers its choices
// until they are written or refused, or until writeLimit has passed, since the store does not report an update that the
// storage refuses. Two servers on one etcd can choose the same address.
type allocator struct {
	ranges Ranges
	find   Find
	// turn is a lock for the request that chooses, which others wait for until their context is done. It has one element
	// then.
	turn chan struct{}

	mu sync.Mutex
	// pending are the addresses whose writes may be under way.
	pending map[address]pending
}

// pending is for whom an address was chosen, by how many writes, and when the last one must have ended.
type pending struct {
	service types.NamespacedName
	writes  int
	end     time.Time
}

func newAllocator(ranges Ranges, find Find) *allocator {
	return &allocator{ranges: ranges, find: find, turn: make(chan struct{}, 1), pending: map[address]pending{}}
}

// choose calls decide, which takes addresses for a Service. It returns a function that is called with false if the
// write is refused. The addresses of a dry run are free afterwards.
func (a *allocator) choose(ctx context.Context, s *corev1.Service, dryRun bool,
	decide func(*choice) error) (finish func(context.Context, bool), err error) {
	c := &choice{allocator: a, ctx: ctx, service: nameOf(s), named: map[address]bool{}}
	for _, one := range addressesOf(s) {
		c.named[one] = true
	}
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
		a.pending[one] = pending{c.service, a.pending[one].writes + 1, time.Now().Add(writeLimit)}
	}
	return func(_ context.Context, written bool) {
		if !written {
			a.refused(c.service, c.taken)
		}
	}, nil
}

// refused ends the claim of one write to addresses. Another write of the same Service may have one, too.
func (a *allocator) refused(service types.NamespacedName, addresses []address) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range addresses {
		switch p := a.pending[one]; {
		case p.service != service:
		case p.writes > 1:
			p.writes--
			a.pending[one] = p
		default:
			delete(a.pending, one)
		}
	}
}

// written ends all claims to addresses that a Service has now.
func (a *allocator) written(service types.NamespacedName, addresses []address) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range addresses {
		if a.pending[one].service == service {
			delete(a.pending, one)
		}
	}
}

// underWay returns the addresses that other Services may be about to have.
func (a *allocator) underWay(service types.NamespacedName) map[address]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, addresses := time.Now(), map[address]bool{}
	for one, p := range a.pending {
		switch {
		case now.After(p.end):
			delete(a.pending, one)
		case p.service != service: // of two writes of one Service, one at most succeeds
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
	// named are the addresses that the client has named, of which none is chosen at random.
	named map[address]bool
	// misses is the number of lookups that found an address used. After lookups of them, used has the addresses of all
	// Services.
	misses int
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

// look reads whether a Service has an address. After some that have one, it reads all addresses: the range may be
// nearly full.
func (c *choice) look(a address) error {
	if c.misses > lookups {
		return nil
	}
	value := a.String()
	if c.misses == lookups {
		value = ""
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
	if c.used[a] || c.misses == lookups {
		c.misses++
	}
	return nil
}

// next takes one of size addresses: a random one behind the reserved ones at the beginning, or of these if no other is
// free.
func (c *choice) next(size, reserved uint64, at func(index uint64) address) (address, error) {
	for _, band := range [][2]uint64{{reserved, size}, {0, reserved}} {
		n := band[1] - band[0]
		if n == 0 {
			continue
		}
		start := rand.Uint64N(n)
		for i := range n {
			one := at(band[0] + (start+i)%n)
			if c.named[one] {
				continue
			}
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
	one, err := c.next(usable(prefix), reservedOf(sizeOf(prefix), 16, 256), func(index uint64) address {
		return address{ip: addressAt(prefix, index)}
	})
	return one.ip, err
}

// takePort takes a node port.
func (c *choice) takePort(port int32) error {
	ports := c.allocator.ranges.nodePorts
	if !ports.Contains(int(port)) {
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", ports)
	}
	free, err := c.take(address{port: port})
	if err == nil && !free {
		return errPortTaken
	}
	return err
}

// nextPort takes a node port.
func (c *choice) nextPort() (int32, error) {
	ports := c.allocator.ranges.nodePorts
	size := uint64(ports.Size)
	one, err := c.next(size, reservedOf(size, 32, 128), func(index uint64) address {
		return address{port: int32(ports.Base) + int32(index)}
	})
	return one.port, err
}

func nameOf(s *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// addressesOf returns the addresses that a Service has by its type. Fields that other types use may have values, which
// reserve nothing.
func addressesOf(s *corev1.Service) (addresses []address) {
	if needsClusterIP(s) {
		for _, ip := range append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...) {
			if parsed, err := netip.ParseAddr(ip); err == nil {
				addresses = append(addresses, address{ip: parsed})
			}
		}
	}
	if usesNodePorts(s) {
		for _, port := range nodePortsOf(s) {
			addresses = append(addresses, address{port: port})
		}
	}
	if NeedsHealthCheck(s) && s.Spec.HealthCheckNodePort != 0 {
		addresses = append(addresses, address{port: s.Spec.HealthCheckNodePort})
	}
	return addresses
}
