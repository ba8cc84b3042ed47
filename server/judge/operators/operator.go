package operators

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Operator is what is judged: a command in any language, or a function of this process.
type Operator struct {
	// Command is the program and its arguments. Its environment has KUBECONFIG, the path of a kubeconfig, which also
	// replaces {kubeconfig} in the arguments. There {port} is a port for its webhooks, and {certs} a folder with their
	// certificate, tls.crt and tls.key. It runs in a process group of its own, which is killed with it. On Linux it does
	// not outlive this process, however that ends.
	Command []string
	// Start runs the operator until ctx is done. It is called if there is no Command. A crash ends ctx, and every
	// request that is sent through cfg after that fails, so that code that ignores ctx writes nothing either.
	Start func(ctx context.Context, cfg *rest.Config) error
	// Output receives stdout and stderr of the command: lines, each after the number of its run, the plan, and the
	// number of the start in it. Several processes write to it at a time. Default: nothing.
	Output io.Writer
}

// instance is one start of the operator.
type instance struct {
	stop   func()         // kills it, without waiting
	ended  chan struct{}  // closed when nothing of it runs any more
	err    error          // its end; set before ended is closed
	killed atomic.Bool    // by the judge
	number string         // of the starts in this process, for instanceHeader
	held   func() float64 // see quiet.held
}

// instanceHeader has the number of the instance that sends a request, of instances in this process: they share
// connections, and a request of one that was killed may arrive when the next one runs.
const instanceHeader = "Keepwatch-Judge-Instance"

// kill ends the instance as a crash does: at once, and without a last request.
func (i *instance) kill() {
	if !i.killed.Swap(true) {
		i.stop()
	}
}

func (i *instance) hasEnded() bool {
	select {
	case <-i.ended:
		return true
	default:
		return false
	}
}

// endWait bounds the wait for the end of a killed instance.
const endWait = time.Minute

// wait waits for the end of a killed instance.
func (i *instance) wait() error {
	select {
	case <-i.ended:
		return nil
	case <-time.After(endWait):
		return fmt.Errorf("the operator still runs %v after it was killed", endWait)
	}
}

// start starts the operator as a client of a world.
func (o Operator) start(w *world) (*instance, error) {
	if len(o.Command) == 0 {
		return o.startFunction(w), nil
	}
	return o.startProcess(w)
}

var errKilled = errors.New("the operator was killed")

func (o Operator) startFunction(w *world) *instance {
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{ended: make(chan struct{}), number: w.traffic.nextInstance()}
	own := rest.CopyConfig(w.operator)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return mortal{next, i, ctx, w.traffic} })
	i.stop = cancel
	go func() {
		defer close(i.ended)
		defer cancel()
		i.err = o.Start(ctx, own)
	}()
	return i
}

// mortal is the transport of an instance in this process. It sends nothing after the instance was killed.
type mortal struct {
	next     http.RoundTripper
	instance *instance
	life     context.Context
	traffic  *traffic // for which a request is in flight as soon as it is sent
}

func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.instance.killed.Load() {
		return nil, errKilled
	}
	m.traffic.enter()
	defer m.traffic.leave(false)
	ctx, cancel := context.WithCancelCause(r.Context())
	context.AfterFunc(m.life, func() { cancel(errKilled) })
	r = r.Clone(ctx)
	r.Header.Set(instanceHeader, m.instance.number)
	return m.next.RoundTrip(r)
}

func (o Operator) startProcess(w *world) (*instance, error) {
	path := filepath.Join(w.folder, "kubeconfig")
	if err := writeKubeconfig(path, w.operator); err != nil {
		return nil, err
	}
	args := w.fill(o.Command, path)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+path)
	out := labelled{to: o.Output, label: w.label + " [" + w.traffic.nextInstance() + "] | "}
	if o.Output != nil {
		cmd.Stdout, cmd.Stderr = &out, &out
	}
	cmd.WaitDelay = time.Second // a child of it may have its output
	ownGroup(cmd)
	i := &instance{ended: make(chan struct{}), stop: func() { killGroup(cmd.Process) }}
	started := make(chan error, 1)
	go func() {
		defer close(i.ended)
		runtime.LockOSThread() // of which the kernel kills the process at its end
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			i.held = newHeld(cmd.Process.Pid).part
		}
		if started <- err; err != nil {
			return
		}
		i.err = cmd.Wait()
		out.end()
		killGroup(cmd.Process) // what it has started
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the operator: %w", err)
	}
	return i, nil
}

// labelled writes lines, each after a label and in one piece.
type labelled struct {
	to    io.Writer
	label string
	line  []byte // that has not ended, of at most maxLine bytes
}

const maxLine = 64 << 10

func (l *labelled) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), maxLine-len(l.line))
		at := bytes.IndexByte(rest[:n], '\n')
		if at >= 0 {
			n = at
		}
		l.line, rest = append(l.line, rest[:n]...), rest[n:]
		if at < 0 && len(l.line) < maxLine {
			break
		}
		if at >= 0 {
			rest = rest[1:]
		}
		l.write()
	}
	return len(b), nil
}

// end writes a line that has not ended.
func (l *labelled) end() {
	if len(l.line) > 0 {
		l.write()
	}
}

func (l *labelled) write() {
	_, _ = l.to.Write(slices.Concat([]byte(l.label), l.line, []byte("\n"))) // the operator is not judged by it
	l.line = l.line[:0]
}

func writeKubeconfig(path string, cfg *rest.Config) error {
	const name = "judge"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	k.CurrentContext = name
	content, err := clientcmd.Write(*k)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}
