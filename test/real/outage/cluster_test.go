package outage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/test/peer"
)

// memberTimeout bounds each wait for something that working members do soon.
const memberTimeout = 5 * time.Minute

// cluster is an etcd of three members.
type cluster struct{ members []*member }

// member is one of them. It can be killed and started again.
type member struct {
	peer.Endpoint
	command peer.Command
	process *peer.Process
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	const size = 3
	path, dir := peer.Build(t, peer.Etcd), t.TempDir()
	var all []string
	var urls [size]string
	for i := range urls {
		urls[i] = freeURL(t)
		all = append(all, fmt.Sprintf("m%d=%s", i, urls[i]))
	}
	c := &cluster{}
	for i := range size {
		name, client := fmt.Sprint("m", i), freeURL(t)
		m := &member{Endpoint: peer.Endpoint(client), command: peer.Command{
			Path: path, Log: filepath.Join(dir, name+".log"), Args: []string{
				"--name", name, "--data-dir", filepath.Join(dir, name),
				"--listen-client-urls", client, "--advertise-client-urls", client,
				"--listen-peer-urls", urls[i], "--initial-advertise-peer-urls", urls[i],
				"--initial-cluster", strings.Join(all, ","),
				"--unsafe-no-fsync", "--log-level", "warn",
			},
		}}
		m.start(t)
		t.Cleanup(func() { m.process.Kill() })
		c.members = append(c.members, m)
	}
	for _, m := range c.members {
		m.ready(t)
	}
	return c
}

func freeURL(t *testing.T) string {
	t.Helper()
	port, err := localhost.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", port)
}

func (m *member) start(t *testing.T) {
	t.Helper()
	var err error
	if m.process, err = peer.Start(m.command); err != nil {
		t.Fatal(err)
	}
}

// ready waits until the member answers reads that need a quorum.
func (m *member) ready(t *testing.T) {
	t.Helper()
	client := dial(t, m.Endpoint)
	try(t, func(ctx context.Context) error {
		_, err := client.Get(ctx, "any")
		return err
	})
}

// try tries until it works.
func try(t *testing.T, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), memberTimeout)
	defer cancel()
	for {
		once, done := context.WithTimeout(ctx, 5*time.Second)
		err := do(once)
		done()
		if err == nil {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

func (c *cluster) addresses() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, string(m.Endpoint))
	}
	return all
}

// endpoints returns all members, as a value for --etcd-servers.
func (c *cluster) endpoints() string { return strings.Join(c.addresses(), ",") }

// dial is a client that goes to whichever member answers.
func (c *cluster) dial(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.addresses(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// moveLeader makes another member the leader.
func (c *cluster) moveLeader(t *testing.T) {
	t.Helper()
	try(t, func(ctx context.Context) error {
		for _, m := range c.members {
			client := dial(t, m.Endpoint)
			status, err := client.Status(ctx, string(m.Endpoint))
			if err != nil {
				return err
			}
			if status.Leader != status.Header.MemberId {
				continue
			}
			members, err := client.MemberList(ctx)
			if err != nil {
				return err
			}
			for _, other := range members.Members {
				if other.ID != status.Leader {
					_, err := client.MoveLeader(ctx, other.ID)
					return err
				}
			}
		}
		return fmt.Errorf("no member of %s leads", c.endpoints())
	})
}
