package served

import (
	"context"
	"fmt"
	"math"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
)

// How the cost of a list grows with the collection: config maps of 1.4 KB in 100 namespaces.

// grownList is a list whose answer is one object of so many.
type grownList struct {
	listMode
	oneOf int
	pages bool
}

const (
	allConfigMaps = "/api/v1/configmaps"
	tenth         = "tenth"      // a label whose value 0 has one object of ten
	thousandth    = "thousandth" // … of a thousand
	// exponent is that of a power law through the smallest and the largest collection: 1 is linear growth.
	exponent = "exponent"
)

// grownIndented is what a browser or curl receives; kube-apiserver indents for the two User-Agents, and for this
// parameter.
var grownIndented = listMode{Row: "LIST JSON, indented", path: allConfigMaps + "?pretty=true", accept: asJSON,
	counted: `"settings.yaml": "`}

var grownTable = listMode{Row: "LIST Table", path: allConfigMaps, accept: asTable, rows: true,
	counted: `"cells":["settings-`}

var grownLists = []grownList{
	grown("LIST JSON", allConfigMaps, 1, false),
	{grownIndented, 1, false},
	{grownTable, 1, false},
	grown("LIST JSON, pages of 500", fmt.Sprintf("%s?limit=%d", allConfigMaps, pageSize), 1, true),
	grown("LIST JSON, selector of 10 %", allConfigMaps+"?labelSelector="+tenth+"%3D0", 10, false),
	grown("LIST JSON, selector of 0.1 %", allConfigMaps+"?labelSelector="+thousandth+"%3D0", 1000, false),
	grown("LIST JSON, a namespace of 1 %", "/api/v1/namespaces/team-000/configmaps", 100, false),
}

func grown(row, path string, oneOf int, pages bool) grownList {
	return grownList{listMode{Row: row, path: path, accept: asJSON, counted: `"settings.yaml":"`}, oneOf, pages}
}

// GrownConfigMap is one of the collection.
func GrownConfigMap(i int) *corev1.ConfigMap {
	c := configMap(i)
	c.Namespace = fmt.Sprintf("team-%03d", i%100)
	c.Labels[tenth], c.Labels[thousandth] = fmt.Sprint(i%10), fmt.Sprint(i%1000)
	return c
}

// PutGrownConfigMap puts one of the collection into etcd.
func PutGrownConfigMap(ctx context.Context, etcd *clientv3.Client, i int) error {
	key, value, err := encoded(GrownConfigMap(i))
	if err == nil {
		_, err = etcd.Put(ctx, key, value)
	}
	return err
}

// MeasureGrowth measures warm lists of servers on one etcd, in which the collection grows to each of some sizes. The
// servers run at the same time, and are measured in turns: a figure is the server's own CPU.
func MeasureGrowth(ctx context.Context, r *Report, etcd *clientv3.Client, servers []*Server, sizes []int) error {
	written := 0
	for _, size := range sizes {
		// The last one has a revision of its own: a watch cache may have a part of the hundred that share one.
		for _, to := range []int{size - 1, size} {
			if err := writeConfigMaps(ctx, etcd, written, to, GrownConfigMap); err != nil {
				return err
			}
			written = to
		}
		for _, l := range grownLists {
			for _, s := range servers {
				u, err := s.measureGrown(ctx, l, size)
				if err != nil {
					return fmt.Errorf("%s: %s of %d: %w", s.by, l.Row, size, err)
				}
				r.Add(s.by, l.Row, seconds(figures.Number(size), u.cpu))
			}
		}
	}
	first, last := sizes[0], sizes[len(sizes)-1]
	for _, l := range grownLists {
		for _, s := range servers {
			by := r.value(s.by, l.Row, figures.Number(last)) / r.value(s.by, l.Row, figures.Number(first))
			r.Add(s.by, l.Row, Figure{exponent, figures.Exponent, math.Log(by) / math.Log(float64(last)/float64(first))})
		}
	}
	return nil
}

// measureGrown measures a list, after one that counts its objects.
func (s *subject) measureGrown(ctx context.Context, l grownList, size int) (usage, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return usage{}, err
	}
	defer conn.close()
	if l.pages {
		return s.readPages(ctx, l.listMode, size)
	}
	length, err := l.verify(ctx, conn, size/l.oneOf)
	if err != nil {
		return usage{}, err
	}
	return s.repeat(func() error { return l.read(ctx, conn, length) })
}
