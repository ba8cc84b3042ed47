package controlplane_test

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/internal/testonly/child"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// A restart preserves data, token and certificate authority. The folder's path is too long for etcd's
// socket, which is in a temporary folder then.
func TestRestartPreservesData(t *testing.T) {
	t.Parallel()
	dir, file := filepath.Join(t.TempDir(), strings.Repeat("long", 30)), filepath.Join(t.TempDir(), "kubeconfig")
	address := child.Address(t)
	first := start(t, controlplane.Options{DataDir: dir, Listen: address, Kubeconfig: file})
	c := connect(t, first.RESTConfig())
	ns := newNamespace(t, c)
	pod := must(c.typed.CoreV1().Pods(ns).Create(t.Context(), testPod("p"), metav1.CreateOptions{}))(t)
	gvr := newCRD(t, c, "persisted")
	custom := must(c.dynamic.Resource(gvr).Namespace(ns).Create(t.Context(),
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gvr.GroupVersion().String(), "kind": "Persisted", "metadata": map[string]any{"name": "k"},
		}}, metav1.CreateOptions{}))(t)
	config := first.RESTConfig()
	first.stop()

	second := start(t, controlplane.Options{DataDir: dir, Listen: address, Kubeconfig: file})
	if again := second.RESTConfig(); again.BearerToken != config.BearerToken ||
		string(again.CAData) != string(config.CAData) {
		t.Error("the token or the certificate authority changed")
	}
	c = connect(t, config) // of the first one
	got := must(c.typed.CoreV1().Pods(ns).Get(t.Context(), "p", metav1.GetOptions{}))(t)
	if got.UID != pod.UID || got.ResourceVersion != pod.ResourceVersion {
		t.Errorf("the pod is %v, was %v", got, pod)
	}
	again := must(c.dynamic.Resource(gvr).Namespace(ns).Get(t.Context(), "k", metav1.GetOptions{}))(t)
	if again.GetUID() != custom.GetUID() {
		t.Errorf("the custom resource is %v, was %v", again, custom)
	}
	list := must(c.typed.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{}))(t)
	next := must(c.typed.CoreV1().Pods(ns).Create(t.Context(), testPod("q"), metav1.CreateOptions{}))(t)
	for _, pair := range [][2]string{{custom.GetResourceVersion(), list.ResourceVersion}, {list.ResourceVersion,
		next.ResourceVersion}} {
		if order := must(resourceversion.CompareResourceVersion(pair[0], pair[1]))(t); order > 0 {
			t.Errorf("resource versions decrease: %s, then %s", pair[0], pair[1])
		}
	}
}

func TestKubeconfigAndTemporaryData(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	server := start(t, controlplane.Options{Kubeconfig: file, Token: "s3cret", TemporaryEtcd: true})
	if info := must(os.Stat(file))(t); info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig has the mode %v", info.Mode())
	}
	config := must(clientcmd.BuildConfigFromFlags("", file))(t)
	if config.BearerToken != "s3cret" || config.Host != server.RESTConfig().Host {
		t.Errorf("the kubeconfig is %v", config)
	}
	c := connect(t, config)
	for _, name := range []string{"default", "kube-system"} {
		ns := must(c.typed.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}))(t)
		if ns.Status.Phase != corev1.NamespaceActive {
			t.Errorf("%s is %s", name, ns.Status.Phase)
		}
	}
	files := must(os.ReadDir(filepath.Dir(file)))(t)
	if len(files) != 1 {
		t.Errorf("the folder has more files than the kubeconfig: %v", files)
	}
	dir := server.DataDir()
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	server.stop()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there", dir)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	used := t.TempDir()
	start(t, controlplane.Options{DataDir: used})
	address := strings.TrimPrefix(shared.RESTConfig().Host, "https://")
	file := filepath.Join(t.TempDir(), "file")
	foreign := filepath.Join(t.TempDir(), "config")
	const otherCluster = "apiVersion: v1\nkind: Config\nclusters: [{name: prod, cluster: {server: https://prod}}]\n"
	for path, content := range map[string]string{file: "x", foreign: otherCluster} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, refusal := range map[string]struct {
		options controlplane.Options
		want    string
	}{
		"folder in use": {controlplane.Options{DataDir: used}, "is in use by another server"},
		"port in use": {controlplane.Options{Listen: address}, "cannot listen on " + address +
			": another process does"},
		"no address": {controlplane.Options{Listen: "nonsense"},
			`cannot listen on "nonsense": give a host and a port`},
		"unknown host":        {controlplane.Options{Listen: "192.0.2.1:0"}, "cannot listen on 192.0.2.1:0: "},
		"folder below a file": {controlplane.Options{DataDir: filepath.Join(file, "sub")}, "cannot use the data folder"},
		"kubeconfig below a file": {controlplane.Options{Kubeconfig: filepath.Join(file, "sub")},
			"cannot replace the kubeconfig " + filepath.Join(file, "sub") + ": not a directory"},
		"kubeconfig is a folder": {controlplane.Options{Kubeconfig: filepath.Dir(file)}, "cannot replace the kubeconfig " +
			filepath.Dir(file) + ": is a directory"},
		"kubeconfig in no dir": {controlplane.Options{Kubeconfig: filepath.Join(t.TempDir(), "none", "config")},
			"cannot write a kubeconfig into"},
		"kubeconfig of others": {controlplane.Options{Kubeconfig: foreign}, "exists and isn't a kubeconfig of keepwatch"},
		"certificate, no key": {controlplane.Options{Etcd: controlplane.EtcdCluster{
			Servers: []string{"https://127.0.0.1:1"}, CertFile: "x"}}, "requires a key"},
		"adoption, no server":    {controlplane.Options{Adopt: true}, "give its servers"},
		"certificate, no server": {controlplane.Options{Etcd: controlplane.EtcdCluster{CAFile: "x"}}, "give its servers"},
		"memory and a folder": {controlplane.Options{Memory: controlplane.NewMemory(), DataDir: used},
			"in memory or in etcd: give one"},
		"two etcds":         {controlplane.Options{TemporaryEtcd: true, DataDir: used}, "give one of the three"},
		"a quota of memory": {controlplane.Options{QuotaBackendBytes: 1}, "give a data folder"},
		"verified memory":   {controlplane.Options{Verify: true}, "only data in etcd can be verified"},
		"no release":        {controlplane.Options{Version: "latest"}, `the version "latest" is not a release`},
		"no clients' authority": {controlplane.Options{ClientCAFile: filepath.Join(t.TempDir(), "ca")},
			"cannot read the certificate authority of clients"},
		"serving, no key":        {controlplane.Options{CertFile: file}, "requires a key"},
		"no serving certificate": {controlplane.Options{CertFile: file, KeyFile: file}, "does not fit its key"},
		"events for no time": {controlplane.Options{EventTTL: time.Millisecond},
			"events cannot be kept for 1ms: give a second at least"},
		"no storage": {controlplane.Options{Storage: "cacher"},
			`the storage "cacher" is unknown: give "store" or "upstream"`},
		"no etcd URL": {controlplane.Options{Etcd: controlplane.EtcdCluster{Servers: []string{"127.0.0.1:2379"}}},
			`"127.0.0.1:2379" is not an address of an etcd server`},
		"another URL": {controlplane.Options{Etcd: controlplane.EtcdCluster{Servers: []string{"https://a:1",
			"ftp://b:1"}}}, `"ftp://b:1" is not an address`},
		"missing certificate": {controlplane.Options{Etcd: controlplane.EtcdCluster{Servers: []string{"https://127.0.0.1:1"},
			CAFile: filepath.Join(t.TempDir(), "ca")}},
			"cannot use etcd's certificate files"},
	} {
		t.Run(name, func(t *testing.T) {
			err := runFails(t, refusal.options)
			if !strings.Contains(err.Error(), refusal.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %q, want one line with %q", err, refusal.want)
			}
		})
	}
	if content := must(os.ReadFile(foreign))(t); string(content) != otherCluster {
		t.Error("the other kubeconfig was changed")
	}
}

// A start on damaged data fails with an error of one line, and changes nothing.
func TestDamagedData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := start(t, controlplane.Options{DataDir: dir})
	c := connect(t, server.RESTConfig())
	for range 20 {
		newNamespace(t, c)
	}
	server.stop()
	const db = "etcd/member/snap/db"
	log := strings.TrimPrefix(must(filepath.Glob(filepath.Join(dir, "etcd/member/wal/*.wal")))(t)[0], dir+"/")
	for name, damage := range map[string]func(t *testing.T, dir string){
		"no database":      func(t *testing.T, dir string) { remove(t, dir, db) },
		"no log":           func(t *testing.T, dir string) { remove(t, dir, log) },
		"empty database":   func(t *testing.T, dir string) { truncate(t, dir, db, 0) },
		"half a database":  func(t *testing.T, dir string) { truncate(t, dir, db, 16<<10) },
		"garbage database": func(t *testing.T, dir string) { overwrite(t, dir, db, 0) },
		"garbage pages":    func(t *testing.T, dir string) { overwrite(t, dir, db, 8<<10) },
		"garbage log":      func(t *testing.T, dir string) { overwrite(t, dir, log, 200) },
		// etcd treats these as a last record that a crash truncated, and continues without the rest.
		"a garbled length": func(t *testing.T, dir string) { setLength(t, dir, log, 1<<40) },
		"a length of zero": func(t *testing.T, dir string) { setLength(t, dir, log, 0) },
		"half a log":       func(t *testing.T, dir string) { clearFrom(t, dir, log, middleRecord(t, dir, log)) },
		"garbage authority": func(t *testing.T, dir string) {
			overwrite(t, dir, "ca.pem", 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			copied := t.TempDir()
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			damage(t, copied)
			before := snapshot(t, copied)
			err := runFails(t, controlplane.Options{DataDir: copied, Token: "another"})
			if !strings.Contains(err.Error(), copied) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %q, want one line about %s", err, copied)
			}
			after := snapshot(t, copied)
			for file := range before {
				if after[file] != before[file] {
					t.Errorf("%s was changed", file)
				}
				delete(after, file)
			}
			for file := range after {
				t.Errorf("%s is new", file)
			}
		})
	}
}

func remove(t *testing.T, dir, file string) {
	if err := os.Remove(filepath.Join(dir, file)); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, dir, file string, size int64) {
	if err := os.Truncate(filepath.Join(dir, file), size); err != nil {
		t.Fatal(err)
	}
}

// overwrite puts garbage into a file from an offset on.
func overwrite(t *testing.T, dir, file string, from int64) {
	f := must(os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0))(t)
	defer f.Close()
	if _, err := f.WriteAt([]byte(strings.Repeat("garbage ", 4<<10)), from); err != nil {
		t.Fatal(err)
	}
}

// middleRecord returns the offset of a record in the middle of the log.
func middleRecord(t *testing.T, dir, file string) int64 {
	f := must(os.Open(filepath.Join(dir, file)))(t)
	defer f.Close()
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	var offsets []int64
	record := &walpb.Record{}
	for decoder.Decode(record) == nil {
		if record.GetType() == wal.CrcType {
			decoder.UpdateCRC(record.GetCrc())
		}
		offsets = append(offsets, decoder.LastOffset())
	}
	if len(offsets) < 20 {
		t.Fatalf("the log has only %d records", len(offsets))
	}
	return offsets[len(offsets)/2]
}

// setLength changes the length field before the middle record of the log.
func setLength(t *testing.T, dir, file string, length uint64) {
	f := must(os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0))(t)
	defer f.Close()
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, length), middleRecord(t, dir, file)); err != nil {
		t.Fatal(err)
	}
}

// clearFrom overwrites the file with zeros from an offset on.
func clearFrom(t *testing.T, dir, file string, from int64) {
	size := must(os.Stat(filepath.Join(dir, file)))(t).Size()
	truncate(t, dir, file, from)
	truncate(t, dir, file, size)
}

// snapshot returns the content of all files.
func snapshot(t *testing.T, dir string) map[string]string {
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, path))
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
