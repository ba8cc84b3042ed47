package proxy

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const aggregated = "/apis/aggregated.example.com/v1/widgets"

// extension is an API server that shows each caller one widget of his own.
type extension struct {
	mu    sync.Mutex
	lists []string // who asked with which query
}

func (e *extension) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if q.URL.Path != aggregated {
		_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "aggregated.example.com/v1",
			APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget", Verbs: metav1.Verbs{"get", "list", "watch"}}},
		})
		return
	}
	caller := q.Header.Get("X-Remote-User")
	e.mu.Lock()
	e.lists = append(e.lists, caller+"?"+q.URL.RawQuery)
	e.mu.Unlock()
	fmt.Fprintf(w,
		`{"kind":"WidgetList","apiVersion":"aggregated.example.com/v1","metadata":{"resourceVersion":"7"},"items":[`+
			`{"metadata":{"name":"one","uid":"1","resourceVersion":"7","annotations":{"of":%q}}}]}`, caller)
}

// register makes the API server forward the group to the extension, and lets everyone read its widgets.
func (r *rig) register(e *extension) {
	r.Helper()
	server := httptest.NewTLSServer(e)
	r.Cleanup(server.Close)
	_, text, err := net.SplitHostPort(server.Listener.Addr().String())
	r.must(err)
	port, err := strconv.Atoi(text)
	r.must(err)
	ctx := r.Context()
	_, err = r.admin.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "extension"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	r.must(err)
	_, err = r.admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"aggregated.example.com"},
			Resources: []string{"*"}}},
	}, metav1.CreateOptions{})
	r.must(err)
	_, err = r.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:authenticated"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "widgets"},
	}, metav1.CreateOptions{})
	r.must(err)
	r.must(r.admin.CoreV1().RESTClient().Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").
		SetHeader("Content-Type", "application/json").Body(fmt.Appendf(nil, `{
			"kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1", "metadata": {"name": "v1.aggregated.example.com"},
			"spec": {"group": "aggregated.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 1,
				"insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "extension", "port": %d}}}`,
		port)).Do(ctx).Error())
	r.eventually("the extension is available", func() bool { return r.behind(aggregated).code == http.StatusOK })
}

// An aggregated API is forwarded: its server may show a caller less than the roles say.
func TestAggregatedAPI(t *testing.T) {
	t.Parallel()
	r, e := newRig(t), &extension{}
	r.register(e)
	users := map[string][]string{
		"system:serviceaccount:default:reader": nil,
		"admin":                                {"Authorization", "Bearer " + r.server.Config().BearerToken},
	}
	reads := func() {
		t.Helper()
		for user, header := range users {
			for _, query := range []string{"", "?resourceVersion=0", "?resourceVersion=0&limit=500"} {
				if got := r.proxy(aggregated+query, header...); !strings.Contains(got.body, `{"of":"`+user+`"}`) {
					t.Errorf("%s receives %d %s", user, got.code, got.body)
				}
			}
		}
	}
	reads()
	r.create(3)
	r.waitCached(maps + "?resourceVersion=0") // the proxy has described a resource meanwhile
	reads()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, list := range e.lists {
		if strings.Contains(list, "limit=1&") || strings.HasSuffix(list, "limit=1") || strings.Contains(list, "watch=") {
			t.Errorf("the proxy asked for itself: %s", list)
		}
	}
}
