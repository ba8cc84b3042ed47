package etcd_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/source/etcd"
)

// shared is the etcd of all tests that need no special one. Each test has its own prefix.
var shared *member

func TestMain(m *testing.M) {
	if number := os.Getenv(memberVariable); number != "" {
		os.Exit(runPeer(number, os.Args[1]))
	}
	// Each run of the property waits for etcd a few times; the command line overrides.
	if err := flag.Set("rapid.checks", "15"); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	shared = newMember(dir)
	if err := shared.start(); err != nil {
		panic(err)
	}
	code := m.Run()
	shared.stop()
	return await.Goroutines(code)
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

// prefixOf returns the test's own prefix.
func prefixOf(tb testing.TB) string {
	return "/registry/" + strings.ReplaceAll(tb.Name(), "/", ".") + "/"
}

func dial(tb testing.TB, config clientv3.Config) *clientv3.Client {
	tb.Helper()
	config.Logger = zap.NewNop()
	config.DialTimeout = await.Deadline
	config.DialOptions = append(config.DialOptions, grpc.WithConnectParams(grpc.ConnectParams{
		MinConnectTimeout: await.Deadline,
		Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5,
			MaxDelay: 100 * time.Millisecond},
	}))
	client := must(clientv3.New(config))(tb)
	tb.Cleanup(func() { client.Close() })
	return client
}

func newSource(tb testing.TB, client *clientv3.Client, opts etcd.Options) *etcd.Source {
	tb.Helper()
	if opts.Prefix == "" {
		opts.Prefix = prefixOf(tb)
	}
	return must(etcd.New(client, opts))(tb)
}

// fixture is an etcd client, and a source of the test's own prefix.
type fixture struct {
	*clientv3.Client
	*etcd.Source
	prefix string
}

func newFixture(tb testing.TB, opts etcd.Options) fixture {
	client := dial(tb, clientv3.Config{Endpoints: shared.endpoints()})
	must(client.Delete(tb.Context(), prefixOf(tb), clientv3.WithPrefix()))(tb) // of an earlier run
	return fixture{client, newSource(tb, client, opts), prefixOf(tb)}
}

func (w fixture) put(tb testing.TB, key, value string) keepwatch.Revision {
	tb.Helper()
	return keepwatch.Revision(must(w.Client.Put(tb.Context(), w.prefix+key, value))(tb).Header.Revision)
}

// putThrough puts a value that the key does not have yet, while members stop and start. A
// put whose answer is lost may have succeeded, so it is repeated only if etcd does not have
// the value: there is exactly one event. Attempts have a short timeout, since the client may
// have sent the request to a stopped member.
func (w fixture) putThrough(tb testing.TB, key, value string) keepwatch.Revision {
	tb.Helper()
	key = w.prefix + key
	var revision int64
	attempt := 250 * time.Millisecond
	await.True(tb, "a put succeeds", func() bool {
		ctx, cancel := context.WithTimeout(tb.Context(), attempt)
		defer cancel()
		answer, err := w.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", value)).
			Then(clientv3.OpGet(key)).Else(clientv3.OpPut(key, value)).Commit()
		switch {
		case err != nil && ctx.Err() != nil:
			attempt *= 2
			return false
		case unavailable(err):
			return false
		case err != nil:
			tb.Fatal(err)
		case answer.Succeeded:
			revision = answer.Responses[0].GetResponseRange().Kvs[0].ModRevision
		default:
			revision = answer.Header.Revision
		}
		return true
	})
	return keepwatch.Revision(revision)
}

// unavailable reports whether err is that of a stopping member, or of an election.
func unavailable(err error) bool {
	var own rpctypes.EtcdError
	return errors.As(err, &own) && own.Code() == codes.Unavailable || status.Code(err) == codes.Unavailable
}

func (w fixture) delete(tb testing.TB, key string) keepwatch.Revision {
	tb.Helper()
	return keepwatch.Revision(must(w.Client.Delete(tb.Context(), w.prefix+key))(tb).Header.Revision)
}

func (w fixture) watch(tb testing.TB, from keepwatch.Revision) keepwatch.Watch {
	tb.Helper()
	watch := must(w.Source.Watch(tb.Context(), from))(tb)
	tb.Cleanup(watch.Close)
	return watch
}

// list reads all pages.
func list(tb testing.TB, s keepwatch.Source) (objects []keepwatch.Object, revision keepwatch.Revision) {
	tb.Helper()
	page := must(s.List(tb.Context(), keepwatch.ListRequest{}))(tb)
	objects, revision = page.Objects, page.Revision
	for page.Continue != "" {
		page = must(s.List(tb.Context(), keepwatch.ListRequest{Continue: page.Continue}))(tb)
		objects = append(objects, page.Objects...)
		if page.Revision != revision {
			tb.Fatalf("a page shows revision %d, the first one %d", page.Revision, revision)
		}
	}
	return objects, revision
}

// readTo reads a watch up to a revision, and checks that each batch begins where the
// previous one ended.
func readTo(tb testing.TB, w keepwatch.Watch, from, to keepwatch.Revision) (changes []keepwatch.Change) {
	tb.Helper()
	for from < to {
		b := next(tb, w)
		if b.From != from || b.To < b.From {
			tb.Fatalf("batch (%d, %d] follows %d", b.From, b.To, from)
		}
		changes, from = append(changes, b.Changes...), b.To
	}
	return changes
}

// next is Next with a deadline.
func next(tb testing.TB, w keepwatch.Watch) keepwatch.Batch {
	tb.Helper()
	defer time.AfterFunc(await.Deadline, w.Close).Stop()
	return must(w.Next())(tb)
}

// readToEnd reads a watch to its end, and returns its error.
func readToEnd(tb testing.TB, w keepwatch.Watch) error {
	tb.Helper()
	defer time.AfterFunc(await.Deadline, w.Close).Stop()
	for {
		if _, err := w.Next(); err != nil {
			if _, again := w.Next(); again != err {
				tb.Errorf("Next returns %v, and then %v", err, again)
			}
			return err
		}
	}
}

func kindOf(err error) keepwatch.FailureKind {
	var failure *keepwatch.Failure
	if !errors.As(err, &failure) {
		return 0
	}
	return failure.Kind
}

func wantKind(tb testing.TB, err error, kind keepwatch.FailureKind) {
	tb.Helper()
	if kindOf(err) != kind {
		tb.Errorf("got %v (%v), want %v", kindOf(err), err, kind)
	}
}

// describe formats changes as sign, key and value.
func describe(changes []keepwatch.Change) string {
	var all []string
	for _, c := range changes {
		sign := map[keepwatch.ChangeType]string{keepwatch.Added: "+", keepwatch.Modified: "~", keepwatch.Deleted: "-"}[c.Type]
		all = append(all, fmt.Sprintf("%s%s", sign, c.Object.Key()))
		if o, ok := c.Object.(*etcd.Object); ok && c.Type != keepwatch.Deleted {
			all[len(all)-1] += "=" + string(o.Value())
		}
	}
	return strings.Join(all, " ")
}

func socketIn(dir string) string { return filepath.Join(dir, "s") }
