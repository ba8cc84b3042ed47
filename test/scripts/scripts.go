// Package scripts runs kubectl sessions, written as scripts, against an API
// server. The same sessions run against kube-apiserver and keepwatch serve: the
// first shows that a script expects what users get elsewhere, the second that
// they get it from us.
//
// A script has a namespace of its own, named after it and in $NS, that its
// kubectl works in. Besides testscript's commands there are
//
//	[!] kubectl ARGS...        runs kubectl
//	until ARGS...              runs kubectl ARGS again until it succeeds
//	follow NAME ARGS...        starts kubectl ARGS, which goes on
//	watching NAME              waits until the server has answered NAME's watch
//	seen NAME REGEXP           waits until NAME has printed what matches
//
// A change that comes before NAME watches may be part of the state that it starts
// with: a script that wants to see it as a change waits with watching, or until
// the state before it is seen.
//
// and the condition [keepwatch], which holds on keepwatch serve.
package scripts

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/test/peer"
)

// timeout bounds how long a script waits for something that will happen.
const timeout = time.Minute

// Run runs the scripts in dir, each as a subtest, against server.
func Run(t *testing.T, server *peer.Server, dir string, isKeepwatch bool) {
	kubectl := peer.Build(t, peer.Kubectl)
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup:               func(env *testscript.Env) error { return setup(env, server) },
		Condition: func(name string) (bool, error) {
			if name == "keepwatch" {
				return isKeepwatch, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"kubectl": func(ts *testscript.TestScript, neg bool, args []string) {
				err := ts.Exec(kubectl, args...)
				if neg && err == nil {
					ts.Fatalf("kubectl %s succeeded", strings.Join(args, " "))
				}
				if !neg {
					ts.Check(err)
				}
			},
			"until":    func(ts *testscript.TestScript, _ bool, args []string) { until(ts, kubectl, args) },
			"follow":   func(ts *testscript.TestScript, _ bool, args []string) { follow(ts, kubectl, args) },
			"watching": watching,
			"seen":     seen,
		},
	})
}

// setup gives a script its namespace, and a kubeconfig that has it as default.
func setup(env *testscript.Env, server *peer.Server) error {
	tb := env.T().(testing.TB) // as Env.T promises to testscript.Run's tests
	namespace := path.Base(tb.Name())
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Namespaces().Create(tb.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(server.Kubeconfig())
	if err != nil {
		return err
	}
	config.Contexts[config.CurrentContext].Namespace = namespace
	file := filepath.Join(env.WorkDir, ".kubeconfig")
	env.Setenv("NS", namespace)
	for _, variable := range peer.KubectlEnv(file, env.WorkDir) {
		name, value, _ := strings.Cut(variable, "=")
		env.Setenv(name, value)
	}
	return clientcmd.WriteToFile(*config, file)
}

// until runs kubectl until it succeeds.
func until(ts *testscript.TestScript, kubectl string, args []string) {
	deadline := time.Now().Add(timeout)
	for {
		err := ts.Exec(kubectl, args...)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("still fails after %s: %v", timeout, err)
		}
	}
}

// follow starts kubectl with the arguments after the first, which names it. It
// reports its requests on stderr.
func follow(ts *testscript.TestScript, kubectl string, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: follow NAME ARGS...")
	}
	out, err := os.Create(printed(ts, args[0]))
	ts.Check(err)
	defer out.Close() // kubectl has its own descriptor
	p, err := peer.Start(peer.Command{
		Path: kubectl, Args: append(args[1:], "-v=6"), Stdout: out, Log: requested(ts, args[0]),
		Env: peer.KubectlEnv(ts.Getenv("KUBECONFIG"), ts.Getenv("HOME")),
	})
	ts.Check(err)
	ts.Defer(p.Kill)
}

// printed is the file with the stdout of a followed kubectl.
func printed(ts *testscript.TestScript, name string) string {
	return filepath.Join(ts.Getenv("WORK"), ".follow-"+name)
}

// requested is the file with its stderr: a line for each answer to a request, and
// what it complains of.
func requested(ts *testscript.TestScript, name string) string { return printed(ts, name) + ".log" }

// watchAnswered is kubectl's line about the answer to a watch: the server has
// begun it, and sends every change after the revision it was asked for.
var watchAnswered = regexp.MustCompile(`(?m)"Response" .*watch=true.* status="200 OK"`)

// watching waits until the watch of a followed kubectl has begun.
func watching(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: watching NAME")
	}
	await(ts, requested(ts, args[0]), watchAnswered)
}

// seen waits until what a followed kubectl has printed matches.
func seen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: seen NAME REGEXP")
	}
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	await(ts, printed(ts, args[0]), pattern)
}

// await waits until what is in a file matches.
func await(ts *testscript.TestScript, file string, pattern *regexp.Regexp) {
	deadline := time.Now().Add(timeout)
	for {
		text, err := os.ReadFile(file)
		ts.Check(err)
		if pattern.Match(text) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no match for %q after %s in %s:\n%s", pattern, timeout, filepath.Base(file), text)
		}
		time.Sleep(10 * time.Millisecond) // between two looks at the file
	}
}
