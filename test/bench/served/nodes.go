package served

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
)

// What a cluster's kubelets cost: each watches the pods of its node. Updates concern the same few nodes, whatever the
// number of watchers: a watcher that is not interested should cost nothing.

const (
	busyNodes = 100 // whose pods are updated
	// perUpdate is what the server needs to deliver one update to the one watcher of its node.
	perUpdate = "server CPU per update"
	delivered = "updates delivered, %"
)

func nodesRow(watchers int) string { return figures.Number(watchers) + " watchers by node" }

func nodeOf(i int) string { return fmt.Sprintf("node-%05d", i) }

// WriteNodePods puts a pod of each of n nodes into etcd, and returns a writer of those of the busy nodes.
func WriteNodePods(ctx context.Context, etcd *clientv3.Client, n int) (*Writer, error) {
	const perWrite = 100
	encoder := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	w := &Writer{etcd: etcd}
	for i := 0; i < n; i += perWrite {
		var puts []clientv3.Op
		for j := i; j < min(i+perWrite, n); j++ {
			value, err := runtime.Encode(encoder, nodePod(j))
			if err != nil {
				return nil, err
			}
			p := pod{podPrefix + metav1.NamespaceDefault + "/" + nodePod(j).Name, string(value)}
			puts = append(puts, clientv3.OpPut(p.key, p.value))
			if j < busyNodes {
				w.pods = append(w.pods, p)
			}
		}
		if _, err := etcd.Txn(ctx).Then(puts...).Commit(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// nodePod is the pod of a node, of 1 KB.
func nodePod(i int) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "agent-" + nodeOf(i), Labels: map[string]string{"app": "agent"},
			UID:               types.UID(fmt.Sprintf("00000000-0000-4000-a000-%012d", i)),
			CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second)),
		},
		Spec: corev1.PodSpec{NodeName: nodeOf(i), Containers: []corev1.Container{{Name: "agent",
			Image: "registry.example.com/agent:1.0"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// measureNodes measures the delivery of rate updates a second while so many nodes are watched.
func (s *Server) measureNodes(ctx context.Context, r *Report, w *Writer, watchers, rate int,
	writing time.Duration) error {
	newest, err := s.newest(ctx)
	if err != nil {
		return err
	}
	updates := int(writing.Seconds() * float64(rate))
	c, err := s.openWatchersOf(ctx, watchers, func(i int) string {
		return watchPath(newest) + "&fieldSelector=spec.nodeName%3D" + nodeOf(i)
	}, updates/busyNodes+1)
	if err != nil {
		return err
	}
	defer c.close()
	var sent [][]time.Time
	u, err := measure(s.process(), func() (err error) {
		if sent, err = w.writeInTurns(ctx, updates, rate); err != nil {
			return err
		}
		return c.waitUntil(ctx, func(i int) bool {
			return i >= busyNodes || c.watchers[i].count.Load() >= int64(len(sent[i]))
		})
	})
	if err != nil {
		return err
	}
	gone := c.countEnded()
	c.close() // no events arrive afterwards
	var late []time.Duration
	for i, watcher := range c.watchers {
		for j, at := range watcher.arrivals {
			if i >= busyNodes || j >= len(sent[i]) {
				return fmt.Errorf("the watcher of %s received an update that was not written", nodeOf(i))
			}
			late = append(late, at-sent[i][j].Sub(c.start))
		}
	}
	if len(late) == 0 {
		return fmt.Errorf("no watcher received an update")
	}
	slices.Sort(late)
	r.Add(s.by, nodesRow(watchers), seconds(perUpdate, u.cpu/time.Duration(updates)), seconds(p50, late[len(late)/2]),
		seconds(p99, late[len(late)*99/100]), Figure{delivered, figures.Count,
			math.Round(float64(len(late)) / float64(updates) * 100)},
		Figure{cutOff, figures.Losses, float64(gone)})
	return nil
}

// writeInTurns updates the writer's pods in turns, n times in all, rate each second. It returns the times of the
// requests for each pod, whose updates follow one another.
func (w *Writer) writeInTurns(ctx context.Context, n, rate int) ([][]time.Time, error) {
	sent := make([][]time.Time, len(w.pods))
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for k := range parallel { // each of which updates its own pods
		group.Go(func() error {
			for i := range n {
				if i%len(w.pods)%parallel != k {
					continue
				}
				due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
				if err := pause(ctx, time.Until(due)); err != nil {
					return err
				}
				_, at, err := w.update(ctx, i)
				if err != nil {
					return err
				}
				sent[i%len(w.pods)] = append(sent[i%len(w.pods)], at)
			}
			return nil
		})
	}
	return sent, group.Wait()
}
