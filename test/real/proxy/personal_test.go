package proxy

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy"
)

var (
	personalSteps = flag.Int("proxy.personal-steps", 120,
		"how many random changes of bindings, namespaces and objects TestPersonalViews makes")
	personalSeed = flag.Uint64("proxy.personal-seed", 1, "make the changes of a run that printed this seed; 0 draws anew")
)

// lateness bounds how long after a revocation an object may arrive: the proxy takes a second at most, and the machine
// of a test may be busy.
const lateness = 5 * time.Second

// Whatever bindings, namespaces and objects do, informers that follow personal views of several users through two
// replicas, which restart, have in the end what the server lists to each user namespace by namespace; and nothing
// arrives that the user was not allowed.
func TestPersonalViews(t *testing.T) {
	t.Parallel()
	seed := *personalSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-proxy.personal-seed %d", seed)
	o := newOnlookers(t, rand.New(rand.NewPCG(seed, 44)))
	for i := range *personalSteps {
		o.step()
		if i%20 == 19 {
			o.settle(i)
		}
		if i%50 == 30 {
			o.must(o.fronts[i%2].Restart(t.Context()))
		}
	}
	o.settle(*personalSteps)
	o.mu.Lock()
	defer o.mu.Unlock()
	t.Logf("%d objects arrived, the latest %v after its revocation", o.arrived, o.latest.Round(time.Millisecond))
	if o.arrived < *personalSteps/4 {
		t.Error("too little arrives")
	}
}

// onlookers are users with informers of all config maps, each through one of two replicas.
type onlookers struct {
	*rig
	random     *rand.Rand
	fronts     []*front
	namespaces []string
	all        []*onlooker

	mu      sync.Mutex
	arrived int
	latest  time.Duration
}

type onlooker struct {
	cache.SharedIndexInformer
	program *personalProgram // in place of the informer; it may be nil
	home    string           // the namespace that the user may always read; it may be empty
	name    string
	direct  kubernetes.Interface // at the server
	revoked map[string]time.Time // by namespace; zero while it is allowed. onlookers.mu is held
}

func newOnlookers(t *testing.T, random *rand.Rand) *onlookers {
	o := &onlookers{random: random}
	o.rig = newRig(t, func(_ *rig, c *proxy.Config) { c.Personal = &proxy.Personal{} })
	o.fronts = []*front{o.rig.front, newFront(t, o.rig.front.config)}
	for _, name := range []string{"a", "a-b", "ab", "b"} {
		o.namespace(name)
	}
	for i := range 3 {
		o.all = append(o.all, o.onlooker(fmt.Sprint("u", i)))
	}
	for i, u := range o.all {
		o.grant(u, o.namespaces[i])
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for i, u := range o.all {
		token := o.tokenOf(u.name)
		config := o.fronts[i%2].Config()
		config.BearerToken = token
		client, err := kubernetes.NewForConfig(config)
		o.must(err)
		u.SharedIndexInformer = informers.NewConfigMapInformer(client, "", 0, cache.Indexers{})
		_, err = u.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(x any) { o.arrives(u, x) }, UpdateFunc: func(_, x any) { o.arrives(u, x) },
		})
		o.must(err)
		u.direct = o.directly(token)
		running.Go(func() { u.RunWithContext(ctx) })
	}
	return o
}

// directly returns a client of the server.
func (o *onlookers) directly(token string) kubernetes.Interface {
	o.Helper()
	direct := rest.AnonymousClientConfig(o.rig.server.Config())
	direct.BearerToken, direct.QPS = token, -1
	client, err := kubernetes.NewForConfig(direct)
	o.must(err)
	return client
}

func (o *onlookers) namespace(name string) {
	o.Helper()
	_, err := o.admin.CoreV1().Namespaces().Create(o.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	o.must(err)
	o.namespaces = append(o.namespaces, name)
	o.must2(o.admin.RbacV1().Roles(name).Create(o.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "onlooker"},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""},
			Resources: []string{"configmaps"}}},
	}, metav1.CreateOptions{}))
}

func (o *onlookers) must2(_ any, err error) {
	o.Helper()
	o.must(err)
}

func (o *onlookers) onlooker(name string) *onlooker {
	o.Helper()
	o.must2(o.admin.CoreV1().ServiceAccounts("default").Create(o.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
	return &onlooker{name: name, revoked: map[string]time.Time{}}
}

func (o *onlookers) tokenOf(name string) string {
	o.Helper()
	token, err := o.admin.CoreV1().ServiceAccounts("default").CreateToken(o.Context(), name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	o.must(err)
	return token.Status.Token
}

func (o *onlookers) grant(u *onlooker, namespace string) {
	o.Helper()
	o.mu.Lock()
	u.revoked[namespace] = time.Time{}
	o.mu.Unlock()
	_, err := o.admin.RbacV1().RoleBindings(namespace).Create(o.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: u.name}, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind,
			Namespace: "default", Name: u.name}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "onlooker"},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		o.must(err)
	}
}

func (o *onlookers) revoke(u *onlooker, namespace string) {
	o.Helper()
	err := o.admin.RbacV1().RoleBindings(namespace).Delete(o.Context(), u.name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	o.must(err)
	o.mu.Lock()
	defer o.mu.Unlock()
	u.revoked[namespace] = time.Now()
}

// arrives records an object that a user receives.
func (o *onlookers) arrives(u *onlooker, x any) {
	m := x.(*corev1.ConfigMap)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.arrived++
	revoked, ever := u.revoked[m.Namespace]
	late := time.Since(revoked)
	switch {
	case !ever:
		o.Errorf("%s receives %s/%s, and was never allowed that", u.name, m.Namespace, m.Name)
	case revoked.IsZero():
	case late > lateness:
		o.Errorf("%s receives %s/%s %v after its revocation", u.name, m.Namespace, m.Name, late)
	default:
		o.latest = max(o.latest, late)
	}
}

// step makes a random change.
func (o *onlookers) step() {
	o.Helper()
	u, namespace := pick(o.random, o.all...), pick(o.random, o.namespaces...)
	name := fmt.Sprintf("%s-m%d", namespace, o.random.IntN(5)) // programs show no namespaces
	maps := o.admin.CoreV1().ConfigMaps(namespace)
	switch o.random.IntN(12) {
	case 0, 1:
		o.grant(u, namespace)
	case 2, 3:
		if namespace != u.home {
			o.revoke(u, namespace)
		}
	case 4:
		if err := maps.Delete(o.Context(), name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			o.must(err)
		}
	case 5:
		if len(o.namespaces) < 8 {
			o.namespace(fmt.Sprint("a", len(o.namespaces)))
		}
	default:
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name},
			Data: map[string]string{"n": fmt.Sprint(o.random.IntN(1000))}}
		if _, err := maps.Update(o.Context(), m, metav1.UpdateOptions{}); err != nil {
			o.must2(maps.Create(o.Context(), m, metav1.CreateOptions{}))
		}
	}
}

// settle waits until each informer has what the server lists to its user, namespace by namespace.
func (o *onlookers) settle(step int) {
	o.Helper()
	for _, u := range o.all {
		var got, want []string
		await.True(o, fmt.Sprintf("step %d: %s has what it may see", step, u.name), func() bool {
			got, want = u.has(), nil
			for _, namespace := range o.namespaces {
				list, err := u.direct.CoreV1().ConfigMaps(namespace).List(o.Context(), metav1.ListOptions{})
				if apierrors.IsForbidden(err) {
					continue
				}
				o.must(err)
				for _, m := range list.Items {
					want = append(want, m.Name+"@"+m.ResourceVersion)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			// without any namespace the server refuses, and an informer keeps what it has
			return len(want) == 0 || slices.Equal(got, want)
		}, func() string { return fmt.Sprintf("%v, want %v", got, want) })
	}
}

// has returns what the user has, as name@revision.
func (u *onlooker) has() (all []string) {
	if u.program != nil {
		return u.program.has()
	}
	for _, x := range u.GetStore().List() {
		m := x.(*corev1.ConfigMap)
		all = append(all, m.Name+"@"+m.ResourceVersion)
	}
	return all
}
