// Package outage stops keepwatch serve's etcd under load: its process, its leader, its
// disk.
package outage

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/test/peer"
	"github.com/keepwatch/keepwatch/test/rawwatch"
)

func TestMain(m *testing.M) { peer.Main(m) }

func dial(t *testing.T, e peer.Endpoint) *clientv3.Client {
	t.Helper()
	client, err := e.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// TestEtcdKilled kills etcd, and at the end the server while etcd is unavailable.
func TestEtcdKilled(t *testing.T) {
	etcd := peer.StartEtcd(t)
	server := peer.ServeOn(t, etcd)
	trial := rawwatch.Start(t, server.Config(), dial(t, etcd.Endpoint))
	for range 3 {
		trial.Written(300)
		etcd.Kill()
		if err := etcd.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	trial.Written(300)
	etcd.Kill()
	server.Kill()
	for _, restart := range []*peer.Service{etcd.Service, server.Service} {
		if err := restart.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	trial.Written(300)
	trial.Judge()
}

// TestLeaderMoves hands leadership from member to member, and then kills each
// member in turn.
func TestLeaderMoves(t *testing.T) {
	c := startCluster(t)
	server := peer.Serve(t, "--etcd-servers", c.endpoints())
	trial := rawwatch.Start(t, server.Config(), c.dial(t))
	for range 4 {
		trial.Written(200)
		c.moveLeader(t)
	}
	for _, m := range c.members {
		trial.Written(200)
		m.process.Kill()
		trial.Written(200)
		m.start(t)
		m.ready(t)
	}
	trial.Written(200)
	trial.Judge()
}

// TestDiskFull fills etcd up to its quota, so that it accepts no writes, and frees space
// by compaction and defragmentation.
func TestDiskFull(t *testing.T) {
	const quota = 24 << 20
	etcd := peer.StartEtcd(t, "--quota-backend-bytes", fmt.Sprint(quota))
	server := peer.ServeOn(t, etcd)
	client := dial(t, etcd.Endpoint)
	trial := rawwatch.Start(t, server.Config(), client)
	trial.Written(500)
	fill(t, client)
	reads(t, server)
	if _, err := client.Delete(t.Context(), filler, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), trial.RecordRevision(), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Defragment(t.Context(), string(etcd.Endpoint)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	trial.Written(500)
	trial.Judge()
}

const filler = "/filler/"

// fill writes until etcd answers that it has no space.
func fill(t *testing.T, client *clientv3.Client) {
	t.Helper()
	value := string(make([]byte, 256<<10))
	for i := 0; ; i++ {
		_, err := client.Put(t.Context(), fmt.Sprint(filler, i), value)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// reads checks that a server whose etcd accepts no writes answers reads, also of the
// newest state, and refuses writes.
func reads(t *testing.T, server *peer.Server) {
	t.Helper()
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list on a full disk: %v", err)
	}
	ns, err := client.CoreV1().Namespaces().Get(t.Context(), "ns1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns.Annotations = map[string]string{"more": "than fits"}
	if _, err := client.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{}); err == nil {
		t.Error("a write on a full disk was acknowledged")
	}
}
