package proxy

import (
	"context"
	"flag"
	"fmt"
	stdmaps "maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	personalSteps = flag.Int("proxy.personal-steps", 120,
		"how many random changes of bindings, namespaces and objects TestPersonalViews makes")
	personalUsers = flag.Int("proxy.personal-users", 3, "how many users with informers TestPersonalViews has")
	personalSeed  = flag.Uint64("proxy.personal-seed", 1, "make the changes of a run that printed this seed; 0 draws anew")
)

// lateness bounds how long after a revocation an object may arrive: the proxy takes a second at most, and the machine
// of a test may be busy.
const lateness = 5 * time.Second

// Whatever bindings of users and of a group, roles, namespaces and objects do, informers that follow personal views of
// several users through two replicas, which restart as the server does, and between which the users move, have in the
// end what the server lists to each user namespace by namespace; and nothing arrives that the user was not allowed. At
// each bookmark a watch has had what the namespaces have at its revision.
func TestPersonalViews(t *testing.T) {
	t.Parallel()
	followPersonalViews(t, peer.Kubernetes(t), func(string, string) bool { return false })
}

// The same at a server that also asks a webhook, which lets some of the users read one namespace whatever roles say. A
// proxy that restarts knows of no such answer.
func TestPersonalViewsBesideAWebhook(t *testing.T) {
	if testing.Short() {
		t.Skip("make verify AREA=proxy")
	}
	t.Parallel()
	hooked := func(name, namespace string) bool {
		return namespace == "ab" && slices.Contains([]string{"u0", "u3", "u7", "u12"}, name)
	}
	followPersonalViews(t, serverWithWebhook(t, &policy{reads: func(user, namespace string) bool {
		return hooked(strings.TrimPrefix(user, "system:serviceaccount:default:"), namespace)
	}}), hooked)
}

func followPersonalViews(t *testing.T, server *peer.Server, hooked func(user, namespace string) bool) {
	seed := *personalSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-proxy.personal-seed %d", seed)
	o := newOnlookers(t, rand.New(rand.NewPCG(seed, 44)), *personalUsers, server, hooked)
	b := o.bookmarked()
	settles := max(20, *personalSteps/200)
	for i := range *personalSteps {
		o.step()
		if i%settles == settles-1 {
			o.settle(i)
		}
		o.disturb(i)
	}
	o.settle(*personalSteps)
	o.grant(b, o.namespaces[len(o.namespaces)-1]) // a bookmark follows what is granted
	await.True(t, "a bookmark is compared", func() bool { return b.compared.Load() > 0 })
	o.mu.Lock()
	defer o.mu.Unlock()
	t.Logf("%d objects arrived, %d of them after the revocation, %d more than a second after it, the latest %v; "+
		"%d bookmarks were compared", o.arrived, len(o.late), o.laterThan(time.Second),
		slices.Max(append(o.late, 0)).Round(time.Millisecond), b.compared.Load())
	if o.arrived < *personalSteps/4 {
		t.Error("too little arrives")
	}
}

// disturb does after a step what happens to servers and connections: a replica restarts, users move to the other
// replica, the server is killed and loses its history.
func (o *onlookers) disturb(step int) {
	o.Helper()
	if step%50 == 30 {
		o.must(o.fronts[step/50%2].Restart(o.Context()))
	}
	if step%50 == 5 {
		for _, b := range o.balancers {
			b.cut()
		}
	}
	if step%500 == 99 {
		o.server.Kill()
		o.must2(o.server.Compact(o.Context())) // the history is gone, too
		o.must(o.server.Restart(o.Context()))
	}
}

// onlookers are users with informers of all config maps, through two replicas behind a balancer.
type onlookers struct {
	*rig
	random     *rand.Rand
	fronts     []*front
	balancers  []*balancer // the first one is of the informers
	namespaces []string
	all        []*onlooker
	hooked     func(user, namespace string) bool // what is allowed beside roles

	mu      sync.Mutex
	granted map[string]*grants // by namespace
	arrived int
	late    []time.Duration // after the revocation: what has arrived since then
	moments []moment        // of each step, in order
}

// moment is when the server was asked for its newest revision: what has a higher one is later.
type moment struct {
	at       time.Time
	revision int64
}

// grants are what roles and bindings say about a namespace.
type grants struct {
	role  bool            // the role allows anything
	group bool            // the group of all onlookers is bound
	users map[string]bool // that are bound
}

type onlooker struct {
	cache.SharedIndexInformer
	program *personalProgram // in place of the informer; it may be nil
	home    string           // the namespace that the user may always read; it may be empty
	name    string
	direct  kubernetes.Interface // at the server
	// revoked is when the user was last allowed to read a namespace, zero while it is; since is when that has changed
	// last. onlookers.mu is held for both.
	revoked, since map[string]time.Time
	watched        *watchedMaps              // in place of the informer; it may be nil
	compared       atomic.Int64              // bookmarks
	refused        atomic.Pointer[time.Time] // when a list or a watch was, last
}

func newOnlookers(t *testing.T, random *rand.Rand, users int, server *peer.Server,
	hooked func(user, namespace string) bool) *onlookers {
	o := &onlookers{random: random, granted: map[string]*grants{}, hooked: hooked}
	o.rig = newRigOn(t, server, func(_ *rig, c *proxy.Config) { c.Personal = &proxy.Personal{} })
	o.fronts = []*front{o.rig.front, newFront(t, o.rig.front.config)}
	o.balancers = []*balancer{newBalancer(t, o.fronts[0].server.URL, o.fronts[1].server.URL)}
	for _, name := range []string{"a", "a-b", "ab", "b"} {
		o.namespace(name)
	}
	for i := range users {
		o.all = append(o.all, o.onlooker(fmt.Sprint("u", i)))
	}
	for i, u := range o.all {
		o.grant(u, o.namespaces[i%len(o.namespaces)])
	}
	for _, namespace := range o.namespaces {
		o.record(namespace, func(*grants) {})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for _, u := range o.all {
		token := o.tokenOf(u.name)
		client, err := kubernetes.NewForConfig(o.through(token))
		o.must(err)
		u.SharedIndexInformer = informers.NewConfigMapInformer(client, "", 0, cache.Indexers{})
		_, err = u.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(x any) { o.arrives(u, x) }, UpdateFunc: func(_, x any) { o.arrives(u, x) },
		})
		o.must(err)
		o.must(u.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
			u.failed(err)
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}))
		u.direct = o.directly(token)
		running.Go(func() { u.RunWithContext(ctx) })
	}
	return o
}

// through returns a configuration of clients of both replicas.
func (o *onlookers) through(token string) *rest.Config {
	config := o.fronts[0].Config()
	config.Host, config.BearerToken = o.balancers[0].url, token
	return config
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
	o.mu.Lock()
	o.granted[name] = &grants{role: true, users: map[string]bool{}}
	o.mu.Unlock()
	if !slices.Contains(o.namespaces, name) {
		o.namespaces = append(o.namespaces, name)
	}
	// The server may take a namespace that was made again for the one that ends, for a while.
	await.NoError(o, "the namespace takes a role", func() error {
		_, err := o.admin.RbacV1().Roles(name).Create(o.Context(), &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "onlooker"},
			Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""},
				Resources: []string{"configmaps"}}},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
		return err
	})
}

func (o *onlookers) must2(_ any, err error) {
	o.Helper()
	o.must(err)
}

func (o *onlookers) onlooker(name string) *onlooker {
	o.Helper()
	o.must2(o.admin.CoreV1().ServiceAccounts("default").Create(o.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
	return &onlooker{name: name, revoked: map[string]time.Time{}, since: map[string]time.Time{}}
}

func (o *onlookers) tokenOf(name string) string {
	o.Helper()
	token, err := o.admin.CoreV1().ServiceAccounts("default").CreateToken(o.Context(), name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(24 * 60 * 60))}},
		metav1.CreateOptions{}) // a run takes hours
	o.must(err)
	return token.Status.Token
}

// allow changes what is granted in a namespace, and then writes that. Who may read it since then may since the write.
func (o *onlookers) allow(namespace string, change func(*grants), write func()) {
	o.Helper()
	o.record(namespace, change)
	write()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, u := range o.all {
		if at, ever := u.revoked[namespace]; ever && at.IsZero() {
			u.since[namespace] = time.Now()
		}
	}
}

// deny writes a change, and then changes what is granted in a namespace.
func (o *onlookers) deny(namespace string, change func(*grants), write func()) {
	o.Helper()
	write()
	o.record(namespace, change)
}

func (o *onlookers) record(namespace string, change func(*grants)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.granted[namespace]
	change(g)
	for _, u := range o.all {
		o.recordFor(u, namespace, g)
	}
}

// recordFor records whether a user may read a namespace. o.mu is held.
func (o *onlookers) recordFor(u *onlooker, namespace string, g *grants) {
	allowed := g.role && (g.group || g.users[u.name]) || o.hooked(u.name, namespace)
	at, ever := u.revoked[namespace]
	switch {
	case allowed && (!ever || !at.IsZero()):
		u.revoked[namespace], u.since[namespace] = time.Time{}, time.Now()
	case !allowed && ever && at.IsZero():
		u.revoked[namespace], u.since[namespace] = time.Now(), time.Now()
	}
}

func (o *onlookers) grant(u *onlooker, namespace string) {
	o.Helper()
	o.allow(namespace, func(g *grants) {
		g.users[u.name] = true
		o.recordFor(u, namespace, g) // it may not be one of all yet
	}, func() {
		o.bindTo(namespace, u.name, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: u.name})
	})
}

// bindTo binds somebody to the role of a namespace.
func (o *onlookers) bindTo(namespace, name string, subject rbacv1.Subject) {
	o.Helper()
	_, err := o.admin.RbacV1().RoleBindings(namespace).Create(o.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "onlooker"},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		o.must(err)
	}
}

func (o *onlookers) unbind(namespace, name string) {
	o.Helper()
	if err := o.admin.RbacV1().RoleBindings(namespace).Delete(o.Context(), name,
		metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		o.must(err)
	}
}

func (o *onlookers) revoke(u *onlooker, namespace string) {
	o.Helper()
	o.deny(namespace, func(g *grants) { delete(g.users, u.name) }, func() { o.unbind(namespace, u.name) })
}

// everybody is the name of the bindings of the group of all onlookers.
const everybody = "everybody"

// toggleGroup binds the group of all onlookers in a namespace, or undoes that.
func (o *onlookers) toggleGroup(namespace string) {
	o.Helper()
	if o.granted[namespace].group {
		o.deny(namespace, func(g *grants) { g.group = false }, func() { o.unbind(namespace, everybody) })
		return
	}
	o.allow(namespace, func(g *grants) { g.group = true }, func() {
		o.bindTo(namespace, everybody, rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName,
			Name: "system:serviceaccounts:default"})
	})
}

// toggleRole lets the role of a namespace allow nothing, or what it allowed.
func (o *onlookers) toggleRole(namespace string) {
	o.Helper()
	resource := map[bool]string{true: "pods", false: "configmaps"}[o.granted[namespace].role]
	write := func() {
		_, err := o.admin.RbacV1().Roles(namespace).Patch(o.Context(), "onlooker", types.JSONPatchType,
			[]byte(`[{"op":"replace","path":"/rules/0/resources/0","value":"`+resource+`"}]`), metav1.PatchOptions{})
		o.must(err)
	}
	if o.granted[namespace].role {
		o.deny(namespace, func(g *grants) { g.role = false }, write)
		return
	}
	o.allow(namespace, func(g *grants) { g.role = true }, write)
}

// remake deletes a namespace, as the controller of kube-controller-manager does, and creates another one of its name.
func (o *onlookers) remake(namespace string) {
	o.Helper()
	deleted := metav1.DeleteOptions{}
	o.must(o.admin.CoreV1().Namespaces().Delete(o.Context(), namespace, deleted))
	o.deny(namespace, func(g *grants) { g.role, g.group = false, false; clear(g.users) }, func() {
		rbac := o.admin.RbacV1()
		o.must(rbac.RoleBindings(namespace).DeleteCollection(o.Context(), deleted, metav1.ListOptions{}))
		o.must(rbac.Roles(namespace).DeleteCollection(o.Context(), deleted, metav1.ListOptions{}))
		o.must(o.admin.CoreV1().ConfigMaps(namespace).DeleteCollection(o.Context(), deleted, metav1.ListOptions{}))
		n, err := o.admin.CoreV1().Namespaces().Get(o.Context(), namespace, metav1.GetOptions{})
		o.must(err)
		n.Spec.Finalizers = nil
		o.must2(o.admin.CoreV1().Namespaces().Finalize(o.Context(), n, metav1.UpdateOptions{}))
	})
	await.True(o, "the namespace is gone", func() bool {
		_, err := o.admin.CoreV1().Namespaces().Get(o.Context(), namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	o.namespace(namespace)
	await.NoError(o, "the namespace takes objects", func() error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-m9"}}
		_, err := o.admin.CoreV1().ConfigMaps(namespace).Create(o.Context(), m, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
		return err
	})
}

// isHome reports whether a user may always read a namespace.
func (o *onlookers) isHome(namespace string) bool {
	return slices.ContainsFunc(o.all, func(u *onlooker) bool { return u.home == namespace })
}

// arrives records an object that a user receives.
func (o *onlookers) arrives(u *onlooker, x any) {
	m := x.(*corev1.ConfigMap)
	o.judge(u, m.Namespace, m.Name, lateness)
}

// judge records that a user has an object, and judges whether it may, or might not longer ago than this.
func (o *onlookers) judge(u *onlooker, namespace, name string, ago time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.arrived++
	revoked, ever := u.revoked[namespace]
	late := time.Since(revoked)
	switch {
	case !ever:
		o.Errorf("%s receives %s/%s, and was never allowed that", u.name, namespace, name)
	case revoked.IsZero():
	case late > ago:
		o.Errorf("%s receives %s/%s %v after its revocation", u.name, namespace, name, late)
	default:
		o.late = append(o.late, late)
	}
}

// laterThan returns how many objects arrived longer after their revocation than this. o.mu is held.
func (o *onlookers) laterThan(bound time.Duration) (n int) {
	for _, late := range o.late {
		if late > bound {
			n++
		}
	}
	return n
}

// step makes a random change.
func (o *onlookers) step() {
	o.Helper()
	asked := moment{at: time.Now()}
	newest, err := o.admin.CoreV1().ConfigMaps("default").List(o.Context(), metav1.ListOptions{Limit: 1})
	o.must(err)
	asked.revision, err = strconv.ParseInt(newest.ResourceVersion, 10, 64)
	o.must(err)
	o.mu.Lock()
	o.moments = append(o.moments, asked)
	o.mu.Unlock()
	u, namespace := pick(o.random, o.all...), pick(o.random, o.namespaces...)
	name := fmt.Sprintf("%s-m%d", namespace, o.random.IntN(5)) // programs show no namespaces
	objects := o.admin.CoreV1().ConfigMaps(namespace)
	switch o.random.IntN(24) {
	case 12:
		o.toggleGroup(namespace)
	case 13:
		if !o.isHome(namespace) {
			o.toggleRole(namespace)
		}
	case 14:
		if !o.isHome(namespace) && o.random.IntN(2) == 0 {
			o.remake(namespace)
		}
	case 0, 1, 2, 15:
		o.grant(u, namespace)
	case 3, 4, 16:
		if namespace != u.home {
			o.revoke(u, namespace)
		}
	case 5, 6:
		if err := objects.Delete(o.Context(), name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			o.must(err)
		}
	case 7, 8:
		if len(o.namespaces) < 8 {
			o.namespace(fmt.Sprint("a", len(o.namespaces)))
		}
	default:
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name},
			Data: map[string]string{"n": fmt.Sprint(o.random.IntN(1000))}}
		if _, err := objects.Update(o.Context(), m, metav1.UpdateOptions{}); err != nil {
			o.must2(objects.Create(o.Context(), m, metav1.CreateOptions{}))
		}
	}
}

// settle waits until each informer has what the server lists to its user, namespace by namespace.
func (o *onlookers) settle(step int) {
	o.Helper()
	for _, u := range o.all {
		var got, want []string
		await.True(o, fmt.Sprintf("step %d: %s has what it may see", step, u.name), func() bool {
			if u.program != nil {
				o.supervise(u.program)
			}
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
			return slices.Equal(got, want) || len(want) == 0 && o.keeps(u)
		}, func() string { return fmt.Sprintf("%v, want %v", got, want) }, u.log)
	}
}

// failed records that a list or a watch has failed.
func (u *onlooker) failed(err error) {
	if now := time.Now(); apierrors.IsForbidden(err) {
		u.refused.Store(&now)
	}
}

// keeps reports whether a user without any namespace may have objects: its watch was cut before their deletions, and
// then refused, and an informer keeps what it has. Programs do not say whether they are refused.
func (o *onlookers) keeps(u *onlooker) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	refused := u.refused.Load()
	if u.program != nil || refused == nil {
		return u.program != nil
	}
	for _, revoked := range u.revoked {
		if revoked.After(*refused) {
			return false
		}
	}
	return true
}

// log returns what the user's program says of itself, "" without a program.
func (u *onlooker) log() string {
	if u.program == nil {
		return ""
	}
	return "\n" + u.program.name + ": " + u.program.log()
}

// has returns what the user has, as name@revision.
func (u *onlooker) has() (all []string) {
	if u.program != nil {
		return u.program.has()
	}
	if u.watched != nil {
		return u.watched.has()
	}
	for _, x := range u.GetStore().List() {
		m := x.(*corev1.ConfigMap)
		all = append(all, m.Name+"@"+m.ResourceVersion)
	}
	return all
}

// bookmarked starts a user whose watch asks for bookmarks. At each of them it has had what the namespaces have at the
// bookmark's revision, as far as they are granted, or are not, for long enough.
func (o *onlookers) bookmarked() *onlooker {
	o.Helper()
	u := o.onlooker("bookmarked")
	o.all = append(o.all, u)
	o.grant(u, o.namespaces[0])
	token := o.tokenOf(u.name)
	u.direct = o.directly(token)
	client, err := kubernetes.NewForConfig(o.through(token))
	o.must(err)
	u.watched = &watchedMaps{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			o.followBookmarks(ctx, u, client)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	o.Cleanup(func() { cancel(); <-ended })
	return u
}

// watchedMaps are the config maps that a watch has sent: their revisions, by namespace and name.
type watchedMaps struct {
	mu  sync.Mutex
	all map[string]map[string]string
}

func (w *watchedMaps) has() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range w.all {
		for name, revision := range in {
			all = append(all, name+"@"+revision)
		}
	}
	return all
}

// followBookmarks follows a watch until it ends, from its first state on.
func (o *onlookers) followBookmarks(ctx context.Context, u *onlooker, client kubernetes.Interface) {
	w, err := client.CoreV1().ConfigMaps("").Watch(ctx, metav1.ListOptions{AllowWatchBookmarks: true,
		SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		u.failed(err) // it is forbidden, or the proxy or the server is not there
		return
	}
	defer w.Stop()
	u.watched.mu.Lock()
	u.watched.all = map[string]map[string]string{}
	u.watched.mu.Unlock()
	for e := range w.ResultChan() {
		m, ok := e.Object.(*corev1.ConfigMap)
		if !ok {
			return
		}
		if e.Type == watch.Bookmark {
			o.compare(ctx, u, m.ResourceVersion)
			continue
		}
		if e.Type != watch.Deleted {
			o.arrives(u, m)
		}
		u.watched.mu.Lock()
		in := u.watched.all[m.Namespace]
		if in == nil {
			in = map[string]string{}
			u.watched.all[m.Namespace] = in
		}
		if in[m.Name] = m.ResourceVersion; e.Type == watch.Deleted {
			delete(in, m.Name)
		}
		u.watched.mu.Unlock()
	}
}

// compare compares what a watch has at a bookmark with the lists of the namespaces at its revision. It may be a while
// since the bookmark was sent, but not longer than since the server had an earlier revision.
func (o *onlookers) compare(ctx context.Context, u *onlooker, revision string) {
	sent := o.notBefore(revision)
	for _, namespace := range o.settled(u, sent) {
		want := map[string]string{}
		if o.allowedSince(u, namespace) {
			list, err := o.admin.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{ResourceVersion: revision,
				ResourceVersionMatch: metav1.ResourceVersionMatchExact})
			if err != nil {
				return // the server restarts
			}
			for _, m := range list.Items {
				want[m.Name] = m.ResourceVersion
			}
		}
		u.watched.mu.Lock()
		got := stdmaps.Clone(u.watched.all[namespace])
		u.watched.mu.Unlock()
		if slices.Contains(o.settled(u, sent), namespace) && !stdmaps.Equal(got, want) && len(got)+len(want) > 0 {
			o.mu.Lock()
			since := sent.Sub(u.since[namespace])
			o.mu.Unlock()
			o.Errorf("at the bookmark %s the watch has %v of %s, and the server %v; it was granted or revoked at least %v before",
				revision, got, namespace, want, since)
		}
	}
	u.compared.Add(1)
}

// notBefore returns a time before which the server did not have a revision.
func (o *onlookers) notBefore(revision string) (at time.Time) {
	of, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		o.Error(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range slices.Backward(o.moments) {
		if m.revision < of {
			return m.at
		}
	}
	return time.Time{}
}

// settled returns the namespaces that a user could read, or not, for long enough at a time, and since.
func (o *onlookers) settled(u *onlooker, at time.Time) (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for namespace := range o.granted {
		if at.Sub(u.since[namespace]) > lateness {
			all = append(all, namespace)
		}
	}
	return all
}

func (o *onlookers) allowedSince(u *onlooker, namespace string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, ever := u.revoked[namespace]
	return ever && at.IsZero()
}
