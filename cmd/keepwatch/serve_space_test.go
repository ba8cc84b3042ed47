package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// quota is small, so that a test can fill it.
const quota = 6 << 20

// At etcd's quota writes are refused with a message, while reads, watches and deletes work. A server that
// starts in that state serves. After objects were deleted, writes succeed again without an action.
func TestServeAtItsQuota(t *testing.T) {
	parallel(t)
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "kubeconfig")
	args := []string{"serve", "--listen", "127.0.0.1:0", "--kubeconfig-out", file, "--data-dir", dir,
		"--quota-backend-bytes", fmt.Sprint(quota)}
	p := startProcess(t, args...)
	p.waitReady(t)
	client := clientOf(t, file)
	maps := client.CoreV1().ConfigMaps("default")
	events, err := maps.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	fillEtcd(t, client, dir)
	names := refusesWrites(t, file)
	p.waitStderr(t, "etcd refuses writes")
	terminate(t, p)

	p = startProcess(t, args...)
	p.waitStderr(t, "keepwatch: ready")
	if again := refusesWrites(t, file); !slices.Equal(again, names) {
		t.Errorf("after a restart there are %d objects of %d", len(again), len(names))
	}
	client = clientOf(t, file)
	maps = client.CoreV1().ConfigMaps("default")
	if events, err = maps.Watch(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	for _, name := range names[2:] {
		if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for deleted := 0; deleted < len(names)-2; {
		if next(t, events).Type == watch.Deleted {
			deleted++
		}
	}
	await.NoError(t, "writes succeed", func() error {
		_, err := maps.Create(t.Context(), large("again"), metav1.CreateOptions{})
		return err
	})
	if code, body := health(t, file, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz answers %d %s", code, body)
	}
	p.waitStderr(t, "etcd has space again")
	terminate(t, p)
	if n := strings.Count(p.stderr.String(), "\n"); n > 5 {
		t.Errorf("%d lines on stderr, which begins with %.2000s", n, p.stderr)
	}
}

// fillEtcd creates objects until etcd has no space, also after compacting and defragmenting.
func fillEtcd(t *testing.T, client kubernetes.Interface, dir string) {
	t.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(dir, "run", "etcd.sock")},
		Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	await.NoError(t, "etcd is full", func() (err error) {
		for err == nil {
			_, err = client.CoreV1().ConfigMaps("default").Create(t.Context(), large(""), metav1.CreateOptions{})
		}
		if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "NOSPACE") {
			t.Fatalf("a write is refused with: %v", err)
		}
		return checkNoSpaceToFree(t, etcd)
	})
}

// checkNoSpaceToFree compacts and defragments as the server does, and returns an error if that frees enough space.
func checkNoSpaceToFree(t *testing.T, etcd *clientv3.Client) error {
	t.Helper()
	newest, err := etcd.Get(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = etcd.Compact(t.Context(), newest.Header.Revision, clientv3.WithCompactPhysical()); err != nil &&
		!errors.Is(err, rpctypes.ErrCompacted) {
		t.Fatal(err)
	}
	if _, err = etcd.Defragment(t.Context(), etcd.Endpoints()[0]); err != nil {
		t.Fatal(err)
	}
	status, err := etcd.Status(t.Context(), etcd.Endpoints()[0])
	if err == nil && status.DbSize <= quota/100*95 {
		err = fmt.Errorf("%d bytes are enough room", status.DbSize)
	}
	return err
}

// refusesWrites checks the responses of a server without space. It returns the names of its objects.
func refusesWrites(t *testing.T, kubeconfig string) (names []string) {
	t.Helper()
	client := clientOf(t, kubeconfig)
	maps := client.CoreV1().ConfigMaps("default")
	_, err := maps.Create(t.Context(), large(""), metav1.CreateOptions{})
	if !apierrors.HasStatusCause(err, "EtcdNoSpace") ||
		!strings.Contains(err.Error(), "delete objects, or give etcd a larger quota") {
		t.Errorf("a create is answered: %v", err)
	}
	_, err = client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
	if !apierrors.HasStatusCause(err, "EtcdNoSpace") {
		t.Errorf("a small create is answered: %v", err)
	}
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) < quota/2/largeSize {
		t.Fatalf("a list: %v, %d objects", err, len(list.Items))
	}
	for _, o := range list.Items {
		names = append(names, o.Name)
	}
	patch := []byte(`{"metadata":{"labels":{"a":"b"}}}`)
	if _, err := maps.Patch(t.Context(), names[0], types.MergePatchType, patch,
		metav1.PatchOptions{}); !apierrors.HasStatusCause(err, "EtcdNoSpace") {
		t.Errorf("a patch is answered: %v", err)
	}
	if _, err := maps.Get(t.Context(), names[0], metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	events, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if e := next(t, events); e.Type != watch.Added {
		t.Errorf("a watch begins with %v", e)
	}
	for path, want := range map[string]int{"/readyz": http.StatusInternalServerError,
		"/readyz?exclude=etcd-NOSPACE": http.StatusOK, "/livez": http.StatusOK} {
		code, body := health(t, kubeconfig, path)
		if code != want || code != http.StatusOK && !strings.Contains(body, "[-]etcd-NOSPACE failed") {
			t.Errorf("%s answers %d %s", path, code, body)
		}
	}
	return names
}

// largeSize is the size of objects of which a hundred fill the quota.
const largeSize = 64 << 10

func large(name string) *corev1.ConfigMap {
	data := make([]byte, largeSize)
	rand.Read(data)
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, BinaryData: map[string][]byte{"data": data}}
	if name == "" {
		o.GenerateName = "large-"
	}
	return o
}

// clientOf returns a client of a kubeconfig, which does not wait between requests.
func clientOf(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	return kubernetes.NewForConfigOrDie(configOf(t, kubeconfig))
}

// configOf returns what a kubeconfig says, without client-go's limit of requests.
func configOf(t testing.TB, kubeconfig string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func health(t *testing.T, kubeconfig, path string) (code int, body string) {
	t.Helper()
	config := configOf(t, kubeconfig)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Get(config.Host + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(content)
}

func next(t *testing.T, events watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-events.ResultChan():
		if !ok {
			t.Fatal("the watch ended")
		}
		return e
	case <-time.After(await.Deadline):
		t.Fatal("the watch is silent")
	}
	return watch.Event{}
}
