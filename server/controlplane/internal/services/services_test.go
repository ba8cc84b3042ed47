package services

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stored are Services in the place of a storage. Writes and lists take some time.
type stored struct {
	mu       sync.Mutex
	services map[string]*corev1.Service
	// broken is the error of lists.
	broken error
}

func (s *stored) find(_ context.Context, address string) (*corev1.ServiceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := &corev1.ServiceList{}
	for _, one := range s.services {
		if address == "" || slices.ContainsFunc(addressesOf(one), hasValue(address)) {
			found.Items = append(found.Items, *one.DeepCopy())
		}
	}
	return found, s.broken
}

func hasValue(value string) func(address) bool {
	return func(a address) bool { return a.String() == value }
}

func (s *stored) set(service *corev1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services[service.Name] = service
}

func (s *stored) delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.services, name)
}

func newStored(t *testing.T, ranges string) (*stored, *Addresses) {
	t.Helper()
	parsed, err := ParseRanges(ranges, "")
	if err != nil {
		t.Fatal(err)
	}
	s := &stored{services: map[string]*corev1.Service{}}
	return s, NewAddresses(parsed, s.find)
}

func service(name string, kind corev1.ServiceType) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
}

// No two Services have the same address, however writes overlap: slow ones, refused ones, and those whose hook ends
// before the write, as of updates. Addresses of deleted Services are given again.
func TestConcurrentWrites(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			s, addresses := newStored(t, "10.0.0.0/27")
			var writers sync.WaitGroup
			var given, full int
			for worker := range 8 {
				writers.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(worker)))
					pause := func() { time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond) }
					for i := range 40 {
						pause()
						one := service(fmt.Sprintf("%d-%d", worker, i), corev1.ServiceTypeNodePort)
						finish, err := addresses.BeginCreate(t.Context(), one, &metav1.CreateOptions{})
						if err != nil {
							if !strings.Contains(err.Error(), errFull.Error()) {
								t.Error(err)
							}
							s.mu.Lock()
							full++
							s.mu.Unlock()
							continue
						}
						pause()
						switch random.IntN(4) {
						case 0:
							finish(t.Context(), false)
							continue
						case 1: // as an update that creates
							finish(t.Context(), true)
							pause()
							s.set(one)
							addresses.AfterUpdate(one, &metav1.UpdateOptions{})
						default:
							s.set(one)
							finish(t.Context(), true)
							addresses.AfterCreate(one, &metav1.CreateOptions{})
						}
						s.check(t)
						s.mu.Lock()
						given++
						s.mu.Unlock()
						if random.IntN(3) > 0 {
							pause()
							s.delete(one.Name)
						}
					}
				})
			}
			writers.Wait()
			if given < 30 || full == 0 {
				t.Errorf("seed %d: %d writes, %d refused: nothing was tested", seed, given, full)
			}
			if left := len(addresses.allocator.pending); left != 0 {
				t.Errorf("%d addresses are remembered after all writes", left)
			}
			for name := range maps.Clone(s.services) {
				s.delete(name)
			}
			for i := range 30 {
				one := service(fmt.Sprint(i), corev1.ServiceTypeClusterIP)
				if _, err := addresses.BeginCreate(t.Context(), one, &metav1.CreateOptions{}); err != nil {
					t.Fatalf("seed %d: the %d. of 30 addresses: %v", seed, i+1, err)
				}
				s.set(one)
			}
			s.check(t)
		})
	}
}

// check finds addresses that two Services have.
func (s *stored) check(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owners := map[address]string{}
	for name, one := range s.services {
		own := map[address]bool{}
		for _, a := range addressesOf(one) {
			own[a] = true
		}
		if len(own) == 0 {
			t.Errorf("%s has no address", name)
		}
		for a := range own {
			if other, taken := owners[a]; taken {
				t.Errorf("%s and %s have %v", name, other, a)
			}
			owners[a] = name
		}
	}
}

// A request that is cancelled does not wait for its turn behind one that is slow, and a list that fails refuses the
// write.
func TestUnreadableStorage(t *testing.T) {
	s, addresses := newStored(t, defaultClusterIPs)
	addresses.allocator.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := addresses.BeginCreate(ctx, service("a", corev1.ServiceTypeClusterIP),
		&metav1.CreateOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled request: %v", err)
	}
	<-addresses.allocator.turn
	s.broken = apierrors.NewTooManyRequests("etcd is busy", 1)
	for _, kind := range []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort} {
		if _, err := addresses.BeginCreate(t.Context(), service("a", kind),
			&metav1.CreateOptions{}); !apierrors.IsTooManyRequests(err) {
			t.Errorf("a broken list: %v", err)
		}
		wanted := service("a", kind)
		wanted.Spec.ClusterIP = "10.0.0.7"
		if _, err := addresses.BeginCreate(t.Context(), wanted, &metav1.CreateOptions{}); !apierrors.IsTooManyRequests(err) {
			t.Errorf("a broken list: %v", err)
		}
	}
	s.broken = nil
	if _, err := addresses.BeginCreate(t.Context(), service("a", corev1.ServiceTypeClusterIP),
		&metav1.CreateOptions{}); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// A dry run takes nothing, and neither does a Service that needs nothing: it does not read the others.
func TestNothingTaken(t *testing.T) {
	s, addresses := newStored(t, defaultClusterIPs)
	wanted := service("a", corev1.ServiceTypeClusterIP)
	wanted.Spec.ClusterIP = "10.0.0.7"
	for range 2 {
		if _, err := addresses.BeginCreate(t.Context(), wanted.DeepCopy(),
			&metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Error(err)
		}
	}
	if left := len(addresses.allocator.pending); left != 0 {
		t.Errorf("%d addresses are remembered", left)
	}
	s.broken = errors.New("not to be read")
	headless := service("b", corev1.ServiceTypeClusterIP)
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	for _, one := range []*corev1.Service{service("c", corev1.ServiceTypeExternalName), headless} {
		if _, err := addresses.BeginCreate(t.Context(), one, &metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	}
	policy := corev1.IPFamilyPolicySingleStack
	old := service("d", corev1.ServiceTypeClusterIP)
	old.Spec.ClusterIP, old.Spec.ClusterIPs, old.Spec.IPFamilies, old.Spec.IPFamilyPolicy = "10.0.0.8",
		[]string{"10.0.0.8"}, []corev1.IPFamily{corev1.IPv4Protocol}, &policy
	changed := service("d", corev1.ServiceTypeClusterIP)
	if _, err := addresses.BeginUpdate(t.Context(), changed, old, &metav1.UpdateOptions{}); err != nil ||
		changed.Spec.ClusterIP != "10.0.0.8" {
		t.Errorf("%v, %v", changed.Spec, err)
	}
}

// What was stored by an earlier version, or with other ranges, can be changed otherwise: finalizers must be removable.
func TestUnchangedAddresses(t *testing.T) {
	dual, single, prefer := corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack,
		corev1.IPFamilyPolicyPreferDualStack
	both := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	for name, spec := range map[string]corev1.ServiceSpec{
		"two families are required": {IPFamilyPolicy: &dual},
		"another family":            {IPFamilyPolicy: &single, IPFamilies: both[1:]},
		"an IP of another family":   {ClusterIP: "fd00::1", ClusterIPs: []string{"fd00::1"}},
		"only clusterIPs":           {ClusterIPs: []string{"10.0.0.7"}},
		"two families and no IP":    {IPFamilyPolicy: &prefer, IPFamilies: both},
		"an IP of another range": {ClusterIP: "192.168.0.1", ClusterIPs: []string{"192.168.0.1"}, IPFamilyPolicy: &single,
			IPFamilies: both[:1]},
	} {
		_, addresses := newStored(t, defaultClusterIPs)
		old := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{"example.com/f"}}, Spec: spec}
		old.Spec.Type, old.Spec.Ports = corev1.ServiceTypeClusterIP, []corev1.ServicePort{{Port: 80}}
		changed := old.DeepCopy()
		changed.Finalizers = nil
		if _, err := addresses.BeginUpdate(t.Context(), changed, old, &metav1.UpdateOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if errs := ValidateUpdate(changed, old); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
	s, addresses := newStored(t, "10.0.0.0/29")
	for i := range 6 {
		full := service(fmt.Sprint(i), corev1.ServiceTypeClusterIP)
		full.Spec.ClusterIP = fmt.Sprintf("10.0.0.%d", i+1)
		s.set(full)
	}
	old := service("a", corev1.ServiceTypeClusterIP)
	if _, err := addresses.BeginUpdate(t.Context(), old.DeepCopy(), old, &metav1.UpdateOptions{}); err != nil {
		t.Errorf("no address is left: %v", err)
	}
}

// Of two writes of one Service, the refused one does not free what the other one has chosen.
func TestRefusedTwin(t *testing.T) {
	_, addresses := newStored(t, defaultClusterIPs)
	begin := func(name string) (func(context.Context, bool), error) {
		one := service(name, corev1.ServiceTypeNodePort)
		one.Spec.Ports[0].NodePort = 30010
		return addresses.BeginCreate(t.Context(), one, &metav1.CreateOptions{})
	}
	_, first := begin("a")
	refused, second := begin("a")
	if first != nil || second != nil {
		t.Fatal(first, second)
	}
	refused(t.Context(), false)
	if _, err := begin("b"); !apierrors.IsInvalid(err) {
		t.Errorf("another Service: %v", err)
	}
}

// A random node port is none that another port of the Service has by name.
func TestNamedPort(t *testing.T) {
	parsed, err := ParseRanges("", "40000-40001")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		s := &stored{services: map[string]*corev1.Service{}}
		one := service("a", corev1.ServiceTypeNodePort)
		one.Spec.Ports = append(one.Spec.Ports, corev1.ServicePort{Name: "b", Port: 81, NodePort: 40000})
		if _, err := NewAddresses(parsed, s.find).BeginCreate(t.Context(), one, &metav1.CreateOptions{}); err != nil ||
			one.Spec.Ports[0].NodePort != 40001 {
			t.Fatalf("%v, %v", one.Spec.Ports, err)
		}
	}
}

// A Service that an earlier version stored without a port of health checks gets one.
func TestOlderLoadBalancer(t *testing.T) {
	_, addresses := newStored(t, defaultClusterIPs)
	old := service("a", corev1.ServiceTypeLoadBalancer)
	old.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	changed := old.DeepCopy()
	if _, err := addresses.BeginUpdate(t.Context(), changed, old, &metav1.UpdateOptions{}); err != nil ||
		changed.Spec.HealthCheckNodePort == 0 {
		t.Errorf("%v, %v", changed.Spec, err)
	}
	if errs := ValidateUpdate(changed, old); len(errs) > 0 {
		t.Error(errs)
	}
}

// A Service that an earlier version stored without addresses gets them with its next update.
func TestOlderService(t *testing.T) {
	_, addresses := newStored(t, defaultClusterIPs)
	old := service("a", corev1.ServiceTypeNodePort)
	changed := old.DeepCopy()
	if _, err := addresses.BeginUpdate(t.Context(), changed, old, &metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if s := changed.Spec; s.ClusterIP == "" || !slices.Equal(s.ClusterIPs, []string{s.ClusterIP}) ||
		len(s.IPFamilies) != 1 || s.Ports[0].NodePort == 0 {
		t.Errorf("it has %v", s)
	}
	if errs := ValidateUpdate(changed, old); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestRanges(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "",
		"::ffff:10.0.0.0/112":         "give a prefix",
		"10.0.0.0":                    "give a prefix",
		"10.0.0.0/24,":                "give a prefix",
		"10.0.0.0/24,10.1.0.0/24":     "give one prefix of IPv4, one of IPv6, or both",
		"10.0.0.0/8,fd00::/112,::/64": "give one prefix of IPv4, one of IPv6, or both",
		"10.0.0.0/30":                 "at least 8 addresses",
		"fd00::/63":                   "at least 64 bits",
		"fd00::/126":                  "at least 8 addresses",
		"fd00::/64":                   "",
		" 10.3.4.5/29 , fd00::7/108":  "",
		"0.0.0.0/0":                   "",
	} {
		_, err := ParseRanges(text, "")
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"0-80", "32767-30000", "1-70000", "a-b"} {
		if _, err := ParseRanges("", text); err == nil || !strings.Contains(err.Error(), "give a first and a last port") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, want := range map[string][2]string{
		"10.0.0.0/29":     {"10.0.0.1", "10.0.0.6"},
		"10.0.0.9/29":     {"10.0.0.9", "10.0.0.14"},
		"255.0.0.0/8":     {"255.0.0.1", "255.255.255.254"},
		"fd00::/125":      {"fd00::1", "fd00::7"},
		"fd00:1:2:3::/64": {"fd00:1:2:3::1", "fd00:1:2:3:7fff:ffff:ffff:ffff"},
	} {
		r, err := ParseRanges(text, "")
		if err != nil {
			t.Fatal(err)
		}
		prefix := r.prefixes[0]
		if got := [2]string{r.First().String(), addressAt(prefix, usable(prefix)-1).String()}; got != want {
			t.Errorf("%s is from %s to %s, want %s", text, got[0], got[1], want)
		}
	}
}

// A write that is repeated after a conflict takes the same address again; another Service gets it when the write must
// have ended.
func TestRepeatedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, addresses := newStored(t, defaultClusterIPs)
		take := func(name string) error {
			old, one := service(name, corev1.ServiceTypeExternalName), service(name, corev1.ServiceTypeClusterIP)
			one.Spec.ClusterIP = "10.0.0.7"
			finish, err := addresses.BeginUpdate(t.Context(), one, old, &metav1.UpdateOptions{})
			if err == nil {
				finish(t.Context(), true) // and then the storage refuses the write
			}
			return err
		}
		for range 2 {
			if err := take("a"); err != nil {
				t.Error(err)
			}
		}
		if err := take("b"); !apierrors.IsInvalid(err) {
			t.Errorf("another Service: %v", err)
		}
		time.Sleep(writeLimit + time.Second)
		if err := take("b"); err != nil {
			t.Error(err)
		}
	})
}
