package servers

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/test/peer"
)

// Server is an API server that can be judged.
type Server struct {
	Name string
	// What says what runs, in a sentence; Note says what a reader of its verdicts must know, unless it is empty.
	What, Note string

	start func(testing.TB) running
}

// running is a server for the duration of a test.
type running struct {
	config *rest.Config
	// compact makes the history so far expire, unless the server's storage can't.
	compact func(context.Context) error
	// restart kills the API server, and starts it again.
	restart func(context.Context) error
}

// Servers returns all servers.
func Servers() []Server {
	return []Server{
		{Name: "kube-apiserver", What: "kube-apiserver on etcd.", start: func(tb testing.TB) running {
			return onEtcd(peer.Kubernetes(tb))
		}},
		{Name: "kube-apiserver latest", What: "The same of Kubernetes' newest version.", start: func(tb testing.TB) running {
			return onEtcd(peer.LatestKubernetes(tb))
		}},
		{Name: "keepwatch-apiserver", What: "The same with Keepwatch inside.", start: func(tb testing.TB) running {
			return onEtcd(peer.KeepwatchAPIServerOn(tb, peer.StartEtcd(tb)))
		}},
		{Name: "serve", What: "`keepwatch serve` with its embedded etcd.", start: func(tb testing.TB) running {
			return onEtcd(peer.Serve(tb))
		}},
		{
			Name: "proxy", What: "`keepwatch proxy` in front of kube-apiserver, which is what is restarted.",
			Note: "kube-apiserver loses its history. The proxy then sends the difference to its clients, in place of a 410. By design they can miss intermediate states,\n" +
				"and a deletion can have another revision, which conform would count as broken. All of them arrive at the server's state.",
			start: startProxy,
		},
		{
			Name: "kine on SQLite", What: "kube-apiserver on kine, which stores everything in SQLite.",
			Note: "[A fault of kine](findings/kine-recreated-key.md) breaks the rules.", start: onKine(peer.KineSQLite),
		},
		{Name: "kine on NATS", What: "kube-apiserver on kine, which stores everything in NATS JetStream.",
			start: onKine(peer.KineNATS)},
		{
			Name: "kcp", What: "A workspace of [kcp](findings/kcp-revisions.md) on etcd.",
			Note: "the newest version in the Go module proxy has the API machinery of Kubernetes 1.26, which has no streaming lists.",
			start: func(tb testing.TB) running {
				return onEtcd(peer.KCPWorkspace(tb))
			},
		},
	}
}

// onEtcd is a server whose etcd can be compacted.
func onEtcd(s *peer.Server) running {
	r := alone(s)
	r.compact = func(ctx context.Context) error {
		_, err := s.Compact(ctx)
		return err
	}
	return r
}

func alone(s *peer.Server) running {
	return running{
		config:  s.Config(),
		compact: func(context.Context) error { return nil },
		restart: func(ctx context.Context) error {
			s.Kill()
			return s.Restart(ctx)
		},
	}
}

// onKine starts kube-apiserver on a database. Kine compacts by itself.
func onKine(backend peer.KineBackend) func(testing.TB) running {
	return func(tb testing.TB) running { return alone(peer.KubernetesOn(tb, peer.StartKine(tb, backend))) }
}

// startProxy starts a proxy in front of a kube-apiserver.
func startProxy(tb testing.TB) running {
	tb.Helper()
	behind := peer.Kubernetes(tb)
	r := onEtcd(behind)
	r.config = peer.Proxy(tb, behind).Config()
	return r
}
