package controlplane_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

func etcdClient(t *testing.T, config clientv3.Config) *clientv3.Client {
	config.Logger = zap.NewNop()
	client := must(clientv3.New(config))(t)
	t.Cleanup(func() { client.Close() })
	return client
}

// Keys and values have the format of kube-apiserver, which could continue with the data.
func TestKeysAndValuesAreKubernetes(t *testing.T) {
	t.Parallel()
	server := start(t, controlplane.Options{TemporaryEtcd: true})
	c := connect(t, server.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	gvr := newCRD(t, c, "layouts")
	meta, labels := metav1.ObjectMeta{Name: "x"}, map[string]string{"a": "b"}
	must(c.typed.CoreV1().Pods(ns).Create(ctx, testPod("x"), metav1.CreateOptions{}))(t)
	must(c.typed.CoreV1().Services(ns).Create(ctx, &corev1.Service{ObjectMeta: meta,
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{}))(t)
	//lint:ignore SA1019 deprecated, and served as long as real servers do
	must(c.typed.CoreV1().Endpoints(ns).Create(ctx, &corev1.Endpoints{ObjectMeta: meta}, metav1.CreateOptions{}))(t)
	must(c.typed.CoreV1().Events(ns).Create(ctx, &corev1.Event{ObjectMeta: meta}, metav1.CreateOptions{}))(t)
	must(c.typed.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		metav1.CreateOptions{}))(t)
	must(c.typed.CoreV1().ReplicationControllers(ns).Create(ctx, &corev1.ReplicationController{ObjectMeta: meta,
		Spec: corev1.ReplicationControllerSpec{
			Selector: labels, Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: testPod("x").Spec},
		}}, metav1.CreateOptions{}))(t)
	must(c.typed.AppsV1().Deployments(ns).Create(ctx, testDeployment("x"), metav1.CreateOptions{}))(t)
	must(c.dynamic.Resource(gvr).Namespace(ns).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(), "kind": "Layouts", "metadata": map[string]any{"name": "x"},
	}}, metav1.CreateOptions{}))(t)

	etcd := etcdClient(t, clientv3.Config{Endpoints: server.EtcdCluster().Servers})
	for key, start := range map[string]string{
		"/registry/pods/" + ns + "/x":                                                   "k8s\x00",
		"/registry/services/specs/" + ns + "/x":                                         "k8s\x00",
		"/registry/services/endpoints/" + ns + "/x":                                     "k8s\x00",
		"/registry/events/" + ns + "/x":                                                 "k8s\x00",
		"/registry/minions/" + ns:                                                       "k8s\x00",
		"/registry/namespaces/" + ns:                                                    "k8s\x00",
		"/registry/controllers/" + ns + "/x":                                            "k8s\x00",
		"/registry/deployments/" + ns + "/x":                                            "k8s\x00",
		"/registry/" + gvr.Group + "/layouts/" + ns + "/x":                              "{",
		"/registry/apiextensions.k8s.io/customresourcedefinitions/layouts." + gvr.Group: "{",
	} {
		answer := must(etcd.Get(ctx, key))(t)
		if len(answer.Kvs) != 1 || !bytes.HasPrefix(answer.Kvs[0].Value, []byte(start)) {
			t.Errorf("%s holds %v", key, answer.Kvs)
		} else if leased := answer.Kvs[0].Lease != 0; leased != (key == "/registry/events/"+ns+"/x") {
			t.Errorf("%s expires: %v", key, leased)
		}
	}
}

func TestExternalEtcdWithTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cluster := controlplane.EtcdCluster{CAFile: filepath.Join(dir, "ca"), CertFile: filepath.Join(dir, "cert"),
		KeyFile: filepath.Join(dir, "key")}
	writeCertificate(t, cluster)
	cluster.Servers = []string{startEtcd(t, cluster)}

	server := start(t, controlplane.Options{Etcd: cluster})
	must(connect(t, server.RESTConfig()).typed.CoreV1().Pods("default").Create(t.Context(), testPod("p"),
		metav1.CreateOptions{}))(t)
	tls := must(transport.TLSInfo{CertFile: cluster.CertFile, KeyFile: cluster.KeyFile,
		TrustedCAFile: cluster.CAFile}.ClientConfig())(t)
	etcd := etcdClient(t, clientv3.Config{Endpoints: cluster.Servers, TLS: tls})
	if answer := must(etcd.Get(t.Context(), "/registry/pods/default/p"))(t); len(answer.Kvs) != 1 {
		t.Error("the pod isn't in the external etcd")
	}
	if _, err := os.Stat(filepath.Join(server.DataDir(), "etcd")); err == nil {
		t.Error("an embedded etcd was started, too")
	}
}

// startEtcd runs an etcd on a free port. It requires client certificates if files are given.
func startEtcd(t *testing.T, files controlplane.EtcdCluster) string {
	config := embed.NewConfig()
	config.Dir = t.TempDir()
	config.ListenPeerUrls = nil
	scheme := "http"
	if files.CAFile != "" {
		scheme = "https"
		config.ClientTLSInfo = transport.TLSInfo{CertFile: files.CertFile, KeyFile: files.KeyFile,
			TrustedCAFile: files.CAFile, ClientCertAuth: true}
	}
	config.ListenClientUrls = []url.URL{{Scheme: scheme, Host: "127.0.0.1:0"}}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	config.UnsafeNoFsync = true
	etcd := must(embed.StartEtcd(config))(t)
	t.Cleanup(etcd.Close)
	<-etcd.Server.ReadyNotify()
	return scheme + "://" + etcd.Clients[0].Addr().String()
}

// writeCertificate writes one self-signed certificate for both sides.
func writeCertificate(t *testing.T, files controlplane.EtcdCluster) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(key))(t)})
	for path, content := range map[string][]byte{files.CAFile: cert, files.CertFile: cert, files.KeyFile: private} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
