package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// reviewsPerAddress bounds the tokens that the server reviews at a time for the clients of one address. Everybody can make up tokens.
	reviewsPerAddress = 8
	// clientNetwork is how many bits of an IPv6 address count: a client has a network of such addresses.
	clientNetwork = 64
)

// errBusy is why a token is not reviewed.
var errBusy = errors.New("too many tokens of this client's address are being reviewed")

// addresses bounds the reviews in flight for each client address. It is safe for concurrent use.
type addresses struct {
	mu    sync.Mutex
	slots map[string]*slots
}

// slots are those of one address.
type slots struct {
	taken chan struct{}
	users int // in acquire, or until release; addresses.mu is locked for it
}

func newAddresses() *addresses { return &addresses{slots: map[string]*slots{}} }

// acquire waits for a slot of an address, at most until ctx ends or for reviewFor.
func (a *addresses) acquire(ctx context.Context, address string) (release func(), err error) {
	a.mu.Lock()
	s := a.slots[address]
	if s == nil {
		s = &slots{taken: make(chan struct{}, reviewsPerAddress)}
		a.slots[address] = s
	}
	s.users++
	a.mu.Unlock()
	wait := time.NewTimer(reviewFor)
	defer wait.Stop()
	select {
	case s.taken <- struct{}{}:
		return func() { <-s.taken; a.leave(address, s) }, nil
	case <-wait.C:
		err = errBusy
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	a.leave(address, s)
	return nil, err
}

// leave forgets an address that has no users.
func (a *addresses) leave(address string, s *slots) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(a.slots, address)
	}
}

// clientAddress returns the address of a request's client, or its network. Headers that name another one do not count: clients can
// make them up.
func clientAddress(q *http.Request) string {
	from, err := netip.ParseAddrPort(q.RemoteAddr)
	if err != nil {
		return ""
	}
	address := from.Addr().Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	network, _ := address.Prefix(clientNetwork) // it fails for IPv4 alone
	return network.String()
}
