package apiserver

import (
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// seats compares the seats that lists occupy in both servers' priority and fairness. They depend on how
// many objects the storage reports, and of which size.
func (m *modes) seats() {
	const user = "lister"
	_, err := m.client.RbacV1().ClusterRoleBindings().Create(m.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		m.Fatal(err)
	}
	m.namespace("seats")
	for i := range 40 {
		m.create("seats", fmt.Sprintf("o-%d", i), 20_000)
	}
	sizes := func(s *peer.Server) (objects, bytes float64) {
		of := peer.Labels{"group": "", "resource": "configmaps"}
		all := m.metrics(s)
		return all.Sum("apiserver_resource_objects", of), all.Sum("apiserver_resource_size_estimate_bytes", of)
	}
	// Upstream forgets the size of an object that is created while it counts (resourceSizeEstimator.cleanKeys of
	// k8s.io/apiserver/pkg/storage/etcd3), until the object is written again.
	rewrite := func(all *corev1.ConfigMapList) {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"written":%q}}}`, all.ResourceVersion)
		for _, o := range all.Items {
			_, err := m.client.CoreV1().ConfigMaps(o.Namespace).Patch(m.Context(), o.Name, types.MergePatchType, patch,
				metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				m.Fatal(err)
			}
		}
	}
	var all *corev1.ConfigMapList
	await.State(m, "both servers report the same objects", func() (bool, string) {
		if all, err = m.client.CoreV1().ConfigMaps("").List(m.Context(), metav1.ListOptions{}); err != nil {
			m.Fatal(err)
		}
		objects, bytes := sizes(m.ours)
		upstreams, upstreamBytes := sizes(m.upstream)
		counted := objects == float64(len(all.Items)) && objects == upstreams
		if counted && bytes != upstreamBytes {
			rewrite(all)
		}
		return counted && bytes == upstreamBytes && bytes > 40*20_000, fmt.Sprintf(
			"%d objects; %v in %v bytes, upstream %v in %v bytes", len(all.Items), objects, bytes, upstreams, upstreamBytes)
	})
	for _, path := range []string{
		"/api/v1/configmaps", "/api/v1/configmaps?limit=10", "/api/v1/configmaps?limit=20",
		"/api/v1/configmaps?resourceVersion=0&limit=1",
		"/api/v1/namespaces/seats/configmaps", "/api/v1/configmaps?labelSelector=parity%3D1",
		"/api/v1/configmaps?fieldSelector=metadata.name%3Do-1",
		"/api/v1/configmaps?resourceVersion=" + all.ResourceVersion + "&resourceVersionMatch=Exact&limit=30",
		"/api/v1/configmaps?resourceVersion=" + all.ResourceVersion +
			"&resourceVersionMatch=Exact&labelSelector=parity%3D1&limit=1",
		"/api/v1/secrets", "/api/v1/nodes?limit=500", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"/api/v1/namespaces?limit=2",
		"/apis/apiregistration.k8s.io/v1/apiservices", "/apis/none.example.com/v1/widgets",
	} {
		ours, upstreams := m.seatsOf(m.ours, user, path), m.seatsOf(m.upstream, user, path)
		if m.Logf("%s: %v seats", path, ours); ours != upstreams || ours < 1 {
			m.Errorf("%s occupies %v seats, upstream %v", path, ours, upstreams)
		}
	}
}

// seatsOf returns how many seats a request of a user occupies.
func (m *modes) seatsOf(s *peer.Server, user, path string) float64 {
	m.Helper()
	seats := func() (sum float64) {
		for _, series := range m.metrics(s)["apiserver_flowcontrol_work_estimated_seats"].GetMetric() {
			for _, l := range series.GetLabel() {
				if l.GetName() == "flow_schema" && l.GetValue() == "global-default" {
					sum += series.GetHistogram().GetSampleSum()
				}
			}
		}
		return sum
	}
	client, host := m.clientOf(s, user)
	before := seats()
	answer, err := client.Get(host + path)
	if err != nil {
		m.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		m.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusNotFound {
		m.Errorf("%s is answered %s", path, answer.Status)
	}
	return seats() - before
}
