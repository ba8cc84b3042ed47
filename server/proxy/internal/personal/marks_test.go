package personal

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

const bot, botName = "system:serviceaccount:ci:bot", userPrefix + "system:serviceaccount:ci:bot"

// asBot returns what a service account lists with one of its tokens.
func asBot(token string) Subject {
	s := subject(bot)
	s.User = &user.DefaultInfo{Name: bot, Groups: append(serviceaccount.MakeGroupNames("ci"), user.AllAuthenticated),
		Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {token}}}
	return s
}

// mark marks revisions, which go up by ten, until stop is called.
func (w *world) mark() (stop func()) {
	ctx, stop := context.WithCancel(w.Context())
	go func() {
		for ; ctx.Err() == nil; sleep(ctx, w.views.MarkEvery(), nil) {
			w.set(func() { w.revision += 10 })
			w.views.Mark(ctx, schema.GroupResource{Resource: "pods"}, w.newest)
		}
	}()
	return stop
}

// begins reports whether the first watch of a service account with a token continues from a revision.
func (w *world) begins(s Subject, from keepwatch.Revision) bool {
	w.Helper()
	r, err := w.views.Read(s)
	if err != nil {
		w.Fatal(err)
	}
	defer r.End()
	if _, err := r.Decide(w.Context()); err != nil {
		w.Fatal(err)
	}
	r.Settle(w.Context(), w.newest)
	return resumable(r, from)
}

// A service account whose bindings have not changed for long continues its watch with a new token, and where it has
// never read before, from what was sent when all replicas had agreed on its set. A set that may have changed by
// anything else than bindings is continued from the revision of its first list on.
func TestFirstResumption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.bindAs("bot", botName, "a", true)
		w.set(func() { w.allowed[bot+"/a"] = true })
		defer w.mark()()
		now := func() keepwatch.Revision {
			newest, _ := w.newest(t.Context())
			return newest
		}
		started := now() + 10
		time.Sleep(21 * time.Minute) // between two marks
		sent := now()
		lately := func() keepwatch.Revision { // of what was sent since the last mark, and not the newest
			w.set(func() { w.revision += 100 })
			return now() - 50
		}
		lately()
		tokens := 0
		expect := func(what string, s Subject, from keepwatch.Revision, want bool) {
			t.Helper()
			if tokens++; w.begins(s, from) != want {
				t.Errorf("%s: a watch continues from %d, and the newest is %d: %v", what, from, now(), !want)
			}
		}
		bot := func() Subject { return asBot(fmt.Sprint(tokens)) }
		expect("with a new token", bot(), sent, true)
		expect("from before all replicas had agreed", bot(), started, false)
		human := bot()
		human.User.(*user.DefaultInfo).Name = "ada"
		expect("of a user who may have been in other groups", human, sent, false)
		grouped := bot()
		grouped.User.(*user.DefaultInfo).Groups = append(grouped.User.GetGroups(), "devs")
		expect("of a service account in another group", grouped, sent, false)
		namespaces := bot()
		namespaces.Resource.Resource = "namespaces"
		w.views.Mark(t.Context(), schema.GroupResource{Resource: "namespaces"}, w.newest)
		time.Sleep(5 * time.Minute)
		expect("of namespaces", namespaces, sent, false)
		w.set(func() { w.beyond = true })
		expect("beside other authorizers", bot(), sent, false)
		w.set(func() { w.beyond, w.allowed["system:serviceaccount:ci:bot/"] = false, true })
		expect("of everything", bot(), sent, false)
		w.set(func() { w.allowed["system:serviceaccount:ci:bot/"] = false })
		before := lately()
		w.set(func() { w.revision = sent / 2 })
		expect("of a storage that was restored", bot(), now(), true)
		w.set(func() { w.revision = before + 50 })

		w.bindAs("other", botName, "b", true)
		time.Sleep(4 * time.Minute)
		expect("soon after a change of bindings", bot(), lately(), false)
		time.Sleep(6 * time.Minute)
		expect("from before a change of bindings", bot(), before, false)
		time.Sleep(5 * time.Minute)
		expect("from long after a change of bindings", bot(), lately(), true)
		w.views.Touch(nil, false)
		expect("when changes may have been missed", bot(), lately(), false)
		time.Sleep(2 * time.Hour)
		expect("after a long time", bot(), lately(), true)
		expect("from long ago", bot(), before, false)
		if n := len(w.views.marks.all[schema.GroupResource{Resource: "pods"}]); n > marked {
			t.Errorf("%d marks", n)
		}
	})
}

// client is a service account's client. It knows at which revision it is, and not of which set that is.
type client struct {
	*world  // the replica that it is connected to
	token   int
	reading *Reading
	has     map[string]bool    // namespaces of whose objects it has some
	sent    map[string]bool    // those of which the replica believes it
	next    <-chan struct{}    // closed when the set is to be looked at
	resumed bool               // it has continued what it had
	began   time.Time          // when
	at      keepwatch.Revision // of what it was sent last
	random  *rand.Rand
}

func setOf(n *watchcache.Namespaces) map[string]bool {
	all := map[string]bool{}
	for name := range n.All() {
		all[name] = true
	}
	return all
}

// connect begins a watch at a replica that continues what the client has, or else lists and watches.
func (c *client) connect(to *world) {
	if c.reading != nil {
		c.reading.End()
	}
	s := asBot(fmt.Sprint(c.token))
	s.Verb = "watch"
	r, err := to.views.Read(s)
	if err == nil {
		_, err = r.Decide(to.Context())
	}
	if err != nil {
		to.Fatal(err)
	}
	r.Settle(to.Context(), to.newest)
	if err := r.Open(to.newest); err != nil {
		to.Fatal(err)
	}
	c.world, c.reading, c.began = to, r, time.Now()
	var present *watchcache.Namespaces
	present, c.next, _ = r.Namespaces()
	listed, ok := r.Resumable(c.at)
	if c.resumed = ok && c.has != nil; c.resumed {
		c.sent = setOf(listed)
		return
	}
	c.has, c.sent = setOf(present), setOf(present)
	c.at, _ = to.newest(to.Context())
}

// follow follows the watch up to now, as package watchcache does. Events and bookmarks do not come all the time, and
// the objects of a namespace that is granted have old revisions.
func (c *client) follow() {
	if c.random.IntN(5) == 0 {
		c.at, _ = c.newest(c.Context())
	}
	if !isClosed(c.next) {
		return
	}
	present, next, _ := c.reading.Namespaces()
	if c.next = next; c.resumed && time.Since(c.began) < c.reading.Agreement() {
		c.has = nil
		c.connect(c.world)
		return
	}
	now := setOf(present)
	for name := range maps.Keys(c.sent) {
		if !now[name] {
			delete(c.has, name)
		}
	}
	for name := range now {
		if !c.sent[name] {
			c.has[name] = true
			c.at = keepwatch.Revision(c.random.IntN(int(c.at)))
		}
	}
	c.sent = now
}

// A client that moves between replicas with new tokens has what its service account may see, however late a replica
// learns of changes: if its watch of roles hangs, that is minutes later. It continues what it had, mostly.
func TestServiceAccountsMoveBetweenReplicas(t *testing.T) {
	for _, seed := range []uint64{2, 30} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { moves(t, seed) }) })
	}
}

func moves(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 5))
	var replicas []*world
	var late [2][]func()          // what a replica has not learned yet
	var since, hangs [2]time.Time // the first of that; until then it learns nothing
	for range 2 {
		w := newWorld(t, "a", "b", "c")
		defer w.mark()()
		replicas = append(replicas, w)
	}
	change := func() {
		name := []string{"a", "b", "c"}[random.IntN(3)]
		bound := !replicas[0].allowed[bot+"/"+name]
		for i, w := range replicas {
			w.set(func() { w.allowed[bot+"/"+name] = bound })
			learn := func() { w.bindAs("bot", botName, name, bound) }
			if late[i] = append(late[i], learn); len(late[i]) == 1 {
				since[i] = time.Now()
			}
		}
	}
	catchUp := func(i int) {
		for _, learn := range late[i] {
			learn()
		}
		late[i] = nil
	}
	c := &client{token: 1, random: random}
	c.connect(replicas[0])
	defer func() { c.reading.End() }()
	continued, changes := 0, 0
	for range 1000 {
		for range 1 + random.IntN(100) { // seconds
			for i := range replicas {
				switch {
				case hangs[i].IsZero() && (random.IntN(3) == 0 || time.Since(since[i]) > 2*time.Second):
					catchUp(i)
				case !hangs[i].IsZero() && time.Now().After(hangs[i]): // that is noticed
					hangs[i] = time.Time{}
					catchUp(i)
					replicas[i].views.Touch(nil, false)
				}
			}
			one, _ := replicas[0].newest(t.Context())
			other, _ := replicas[1].newest(t.Context())
			for _, w := range replicas {
				w.set(func() { w.revision = max(one, other) + 1 })
			}
			time.Sleep(time.Second)
			c.follow()
		}
		switch random.IntN(12) {
		case 0, 1:
			changes++
			change()
		case 2, 3:
			if i := random.IntN(2); hangs[i].IsZero() {
				hangs[i] = time.Now().Add(time.Duration(random.IntN(260)) * time.Second)
			}
		case 4:
			for i := range replicas {
				hangs[i] = time.Now()
			}
			for range 15 * 60 {
				time.Sleep(time.Second)
				for i := range replicas {
					if hangs[i] = (time.Time{}); len(late[i]) > 0 {
						catchUp(i)
						replicas[i].views.Touch(nil, false)
					}
				}
				c.follow()
			}
			var want []string
			for _, name := range []string{"a", "b", "c"} {
				if replicas[0].allowed[bot+"/"+name] {
					want = append(want, name)
				}
			}
			if got := slices.Sorted(maps.Keys(c.has)); !slices.Equal(got, want) {
				t.Fatalf("after %d changes: a client has objects of %v, and may see %v", changes, got, want)
			}
		default:
			c.token++
			for _, w := range replicas { // a replica that hangs may continue the newest one
				w.set(func() { w.revision++ })
			}
			if c.connect(replicas[random.IntN(2)]); c.resumed {
				continued++
			}
		}
	}
	t.Logf("%d watches were continued, among %d changes", continued, changes)
	if continued < 50 {
		t.Error("few watches are continued")
	}
}
