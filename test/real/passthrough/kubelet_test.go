package passthrough

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/test/peer"
)

// kubelet is the part of a kubelet that serves exec, attach, port-forward and logs: as Kubernetes' own, it accepts the
// API server's client certificate only, and passes streams on to the streaming server of a container runtime. The
// containers are processes of this machine.
type kubelet struct {
	testing.TB
	flags   []string // of the API server, to find and trust it, and to be trusted
	port    int32
	streams streaming.Server

	mu         sync.Mutex
	containers map[string]*container // by namespace/pod
}

func newKubelet(tb testing.TB) *kubelet {
	tb.Helper()
	k := &kubelet{TB: tb, containers: map[string]*container{}}
	k.startStreams()
	k.startServer()
	return k
}

// startStreams starts the streaming server of the container runtime.
func (k *kubelet) startStreams() {
	k.Helper()
	listener, err := localhost.Listen()
	k.must(err)
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	k.streams, err = streaming.NewServer(config, k)
	k.must(err)
	server := &http.Server{Handler: k.streams} //nolint:gosec // on 127.0.0.1, for the duration of the test
	go func() { _ = server.Serve(listener) }()
	k.Cleanup(func() { server.Close() })
}

// startServer starts what the API server connects to.
func (k *kubelet) startServer() {
	k.Helper()
	clients, serving := peer.NewAuthority(k, "kubelet clients"), value(localhost.NewCertificate())(k)
	file := filepath.Join(k.TempDir(), "kubelet-authority.crt")
	k.must(os.WriteFile(file, serving.Authority, 0o600))
	cert, key := clients.ClientFiles("kube-apiserver-kubelet-client", []string{"system:masters"})
	k.flags = []string{
		"--kubelet-preferred-address-types", "InternalIP", "--kubelet-certificate-authority", file,
		"--kubelet-client-certificate", cert, "--kubelet-client-key", key,
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(clients.Certificate)
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveExec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.serveAttach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.servePortForward)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{value(serving.Pair())(k)}, ClientCAs: trusted,
		ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	k.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	k.port = int32(server.Listener.Addr().(*net.TCPAddr).Port)
}

func (k *kubelet) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

func id(q *http.Request) string { return q.PathValue("namespace") + "/" + q.PathValue("pod") }

func (k *kubelet) serveExec(w http.ResponseWriter, q *http.Request) {
	o, err := remotecommand.NewOptions(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	to, err := k.streams.GetExec(&runtimeapi.ExecRequest{ContainerId: id(q), Cmd: q.Form["command"], Stdin: o.Stdin,
		Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY})
	stream(w, q, to.GetUrl(), err)
}

func (k *kubelet) serveAttach(w http.ResponseWriter, q *http.Request) {
	o, err := remotecommand.NewOptions(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	to, err := k.streams.GetAttach(&runtimeapi.AttachRequest{ContainerId: id(q), Stdin: o.Stdin, Stdout: o.Stdout,
		Stderr: o.Stderr, Tty: o.TTY})
	stream(w, q, to.GetUrl(), err)
}

func (k *kubelet) servePortForward(w http.ResponseWriter, q *http.Request) {
	o, err := portforward.NewV4Options(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	to, err := k.streams.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: id(q), Port: o.Ports})
	stream(w, q, to.GetUrl(), err)
}

// stream passes a request on to the runtime's streaming server, as the kubelet does.
func stream(w http.ResponseWriter, q *http.Request, to string, err error) {
	location, parseErr := url.Parse(to)
	if err != nil || parseErr != nil {
		http.Error(w, fmt.Sprint(err, parseErr), http.StatusInternalServerError)
		return
	}
	utilproxy.NewUpgradeAwareHandler(location, nil, false, true, responder{}).ServeHTTP(w, q)
}

type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

func (k *kubelet) serveLogs(w http.ResponseWriter, q *http.Request) {
	c := k.container(id(q))
	if c == nil {
		http.NotFound(w, q)
		return
	}
	out := http.NewResponseController(w)
	_ = c.output.copy(q.Context(), 0, q.FormValue("follow") == "true", func(text []byte) error {
		_, err := w.Write(text)
		_ = out.Flush()
		return err
	})
}

// container returns the container of a pod, or nil.
func (k *kubelet) container(id string) *container {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.containers[id]
}

// run starts the container of a pod, which ends with the test.
func (k *kubelet) run(tb testing.TB, id string, ports map[int32]string) *container {
	tb.Helper()
	c := newContainer(tb, ports)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.containers[id] = c
	return c
}

// Exec runs a command in a container until it ends.
func (k *kubelet) Exec(_ context.Context, id string, command []string, in io.Reader, out, errors io.WriteCloser,
	tty bool, resize <-chan remotecommand.TerminalSize) error {
	c := k.container(id)
	if c == nil {
		return fmt.Errorf("no container %s", id)
	}
	return c.exec(k.Context(), command, in, out, errors, tty, resize)
}

// Attach connects streams with the main process of a container until it ends.
func (k *kubelet) Attach(ctx context.Context, id string, in io.Reader, out, _ io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize) error {
	c := k.container(id)
	if c == nil {
		return fmt.Errorf("no container %s", id)
	}
	from := c.output.size()
	if in != nil {
		go func() { _, _ = io.Copy(c.stdin, in) }()
	}
	return c.output.copy(ctx, from, true, func(text []byte) error {
		_, err := out.Write(text)
		return err
	})
}

// PortForward connects a stream with a port of a pod until both directions end.
func (k *kubelet) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	c := k.container(id)
	if c == nil {
		return fmt.Errorf("no pod %s", id)
	}
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", c.ports[port])
	if err != nil {
		return err
	}
	defer connection.Close()
	c.begin()
	defer c.end()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(stream, connection)
		stream.Close()
	}()
	_, _ = io.Copy(connection, stream)
	_ = connection.(*net.TCPConn).CloseWrite()
	<-back
	return nil
}

// value returns a value, or ends the test with its error.
func value[T any](value T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}
