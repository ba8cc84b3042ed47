// Package passthrough tests what keepwatch proxy forwards between the real kubectl and a real kube-apiserver: streams
// to containers, by WebSockets and by SPDY, and the commands that write. Behind the API server is a kubelet's own
// streaming server, whose containers are processes of this machine.
package passthrough

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

const node = "local"

// cluster is a kube-apiserver with a node, and keepwatch proxy in front of it.
type cluster struct {
	testing.TB
	kubectl string
	kubelet *kubelet
	users   *peer.Authority // of client certificates
	server  *peer.Server
	proxy   *peer.Server
	admin   kubernetes.Interface
}

func newCluster(tb testing.TB) *cluster {
	tb.Helper()
	c := &cluster{TB: tb, kubectl: peer.Build(tb, peer.Kubectl), kubelet: newKubelet(tb), users: peer.NewAuthority(tb,
		"users")}
	c.server = peer.Kubernetes(tb, append(c.kubelet.flags, "--client-ca-file", c.users.File())...)
	c.proxy = peer.Proxy(tb, c.server, "--impersonate")
	c.admin = value(kubernetes.NewForConfig(c.server.Config()))(tb)
	_, err := c.admin.CoreV1().Nodes().Create(tb.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		metav1.CreateOptions{})
	c.must(err)
	c.patch("/api/v1/nodes/"+node+"/status", fmt.Sprintf(
		`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, c.kubelet.port))
	return c
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// patch changes an object at the server.
func (c *cluster) patch(path, change string) {
	c.Helper()
	c.must(c.admin.CoreV1().RESTClient().Patch("application/merge-patch+json").AbsPath(path).Body([]byte(change)).Do(
		c.Context()).Error())
}

// run creates a pod whose container runs on the node, with an address behind each of its ports.
func (c *cluster) run(tb testing.TB, name string, ports map[int32]string) *container {
	tb.Helper()
	container := c.kubelet.run(tb, "default/"+name, ports)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "example.com/main",
			Stdin: true}}},
	}
	pod, err := c.admin.CoreV1().Pods("default").Create(tb.Context(), pod, metav1.CreateOptions{})
	c.must(err)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: true,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	_, err = c.admin.CoreV1().Pods("default").UpdateStatus(tb.Context(), pod, metav1.UpdateOptions{})
	c.must(err)
	return container
}

// protocol is how kubectl streams.
type protocol string

const (
	webSocket protocol = "WebSocket"
	spdy      protocol = "SPDY"
)

var protocols = []protocol{webSocket, spdy}

// environment makes kubectl use a kubeconfig and the protocol.
func (p protocol) environment(kubeconfig, home string) []string {
	sockets := fmt.Sprint(p == webSocket)
	return append(peer.KubectlEnv(kubeconfig, home), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+sockets,
		"KUBECTL_PORT_FORWARD_WEBSOCKETS="+sockets)
}

// session is kubectl with a kubeconfig and a protocol.
type session struct {
	testing.TB
	cluster     *cluster
	environment []string
}

func (c *cluster) session(tb testing.TB, kubeconfig string, p protocol) *session {
	tb.Helper()
	return &session{TB: tb, cluster: c, environment: append(os.Environ(), p.environment(kubeconfig, tb.TempDir())...)}
}

// command returns kubectl with arguments, which ends with the test.
func (s *session) command(args ...string) *exec.Cmd {
	command := exec.CommandContext(s.Context(), s.cluster.kubectl, args...)
	command.Env = s.environment
	command.WaitDelay = 10 * time.Second
	return command
}

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

// kubectl runs kubectl until it ends.
func (s *session) kubectl(stdin io.Reader, args ...string) result {
	s.Helper()
	command := s.command(args...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = stdin, &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return result{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// succeed is kubectl with no input, which must succeed.
func (s *session) succeed(args ...string) string {
	s.Helper()
	r := s.kubectl(nil, args...)
	if r.code != 0 {
		s.Fatalf("kubectl %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

// started is kubectl in the background.
type started struct {
	*exec.Cmd
	stdin  io.WriteCloser
	output *output // stdout and stderr
	ended  chan struct{}
}

// start starts kubectl, which ends with the test.
func (s *session) start(args ...string) *started {
	s.Helper()
	r := &started{Cmd: s.command(args...), output: newOutput(), ended: make(chan struct{})}
	r.Stdout, r.Stderr = r.output, r.output
	r.stdin = value(r.StdinPipe())(s)
	s.cluster.must(r.Start())
	go func() {
		defer close(r.ended)
		_ = r.Wait()
		r.output.end()
	}()
	s.Cleanup(func() {
		_ = r.Process.Kill()
		<-r.ended
	})
	return r
}

// end waits until kubectl has ended, and returns its exit code.
func (r *started) end(tb testing.TB) int {
	tb.Helper()
	select {
	case <-r.ended:
	case <-time.After(await.Deadline):
		tb.Fatalf("kubectl does not end: %q", r.Args)
	}
	return r.ProcessState.ExitCode()
}
