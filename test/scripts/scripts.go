// Package scripts runs kubectl sessions, written as scripts, against an API server. The
// same sessions run against kube-apiserver, which shows that a script expects the usual
// behaviour, and against keepwatch serve.
//
// A script has a namespace of its own, named after it and in $NS, in which its kubectl
// works. Besides testscript's commands it has
//
//	[!] kubectl ARGS...        runs kubectl
//	until ARGS...              runs kubectl ARGS again until it succeeds
//	follow NAME ARGS...        starts kubectl ARGS in the background
//	watching NAME              waits until the server has answered NAME's watch
//	seen NAME REGEXP           waits until NAME's output matches, which is stdout and stderr
//
// and the condition [keepwatch], which is true on keepwatch serve.
//
// A change before NAME's watch may be part of its first state: a script that needs an
// event of it waits with watching, or until the state before it is seen.
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

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// Run runs the scripts in dir, or those of some names, each as a subtest, against server.
func Run(t *testing.T, server *peer.Server, dir string, isKeepwatch bool, names ...string) {
	kubectl := peer.Build(t, peer.Kubectl)
	var files []string
	for _, name := range names {
		files = append(files, filepath.Join(dir, name+".txtar"))
	}
	if files != nil {
		dir = ""
	}
	testscript.Run(t, testscript.Params{
		Dir: dir, Files: files,
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
			"watching": waitForWatch,
			"seen":     waitForText,
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
	for begun := time.Now(); ; {
		err := ts.Exec(kubectl, args...)
		if err == nil {
			return
		}
		if time.Since(begun) > await.Deadline {
			ts.Fatalf("still fails after %s: %v", await.Deadline, err)
		}
	}
}

// follow starts kubectl with the arguments after the first, which names it. It
// reports its requests on stderr.
func follow(ts *testscript.TestScript, kubectl string, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: follow NAME ARGS...")
	}
	out, err := os.Create(outputFile(ts, args[0]))
	ts.Check(err)
	defer out.Close() // kubectl has its own descriptor
	p, err := peer.Start(peer.Command{
		Path: kubectl, Args: append(args[1:], "-v=6"), Stdout: out, Log: requestLog(ts, args[0]),
		Env: peer.KubectlEnv(ts.Getenv("KUBECONFIG"), ts.Getenv("HOME")),
	})
	ts.Check(err)
	ts.Defer(p.Kill)
}

// printed is the file with the stdout of a followed kubectl.
func outputFile(ts *testscript.TestScript, name string) string {
	return filepath.Join(ts.Getenv("WORK"), ".follow-"+name)
}

// requestLog returns the file with a followed kubectl's stderr: a line for each answer,
// and errors.
func requestLog(ts *testscript.TestScript, name string) string { return outputFile(ts, name) + ".log" }

// watchAnswered matches kubectl's line about the answer to a watch: the server sends every
// change after the requested revision from then on.
var watchAnswered = regexp.MustCompile(`(?m)"Response" .*watch=true.* status="200 OK"`)

// watching waits until the watch of a followed kubectl has begun.
func waitForWatch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: watching NAME")
	}
	waitForOutput(ts, watchAnswered, requestLog(ts, args[0]))
}

// waitForText waits until the output of a followed kubectl matches.
func waitForText(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: seen NAME REGEXP")
	}
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	waitForOutput(ts, pattern, outputFile(ts, args[0]), requestLog(ts, args[0]))
}

// waitForOutput waits until the content of one of the files matches.
func waitForOutput(ts *testscript.TestScript, pattern *regexp.Regexp, files ...string) {
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) { // between two looks at the files
		all := ""
		for _, file := range files {
			text, err := os.ReadFile(file)
			ts.Check(err)
			if pattern.Match(text) {
				return
			}
			all += string(text)
		}
		if time.Since(begun) > await.Deadline {
			ts.Fatalf("no match for %q after %s in\n%s", pattern, await.Deadline, all)
		}
	}
}
