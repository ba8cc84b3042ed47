package manager

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/operator"
)

// Main runs operators as a program, and does not return. It parses the command line, runs
// the operators until SIGINT or SIGTERM, and exits:
//
//	0   after a signal, if everything ended in time
//	1   after an error, which is on stderr
//	2   if the command line is wrong
//
// A second signal ends the process at once.
func Main(ops ...*operator.Operator) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args, os.Stderr, ops))
}

// command is a parsed command line.
type command struct {
	kubeconfig, context string
	elect               bool
	lease               Lease
	endpoints           endpoints
	logFormat           string
	logLevel            slog.Level
}

// The exit codes besides 0.
const (
	codeError = 1
	codeUsage = 2
)

func run(ctx context.Context, args []string, stderr io.Writer, ops []*operator.Operator) int {
	name := filepath.Base(args[0])
	c := &command{endpoints: endpoints{ops: ops}}
	flags := c.flags(name, stderr, ops)
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err != nil, flags.NArg() > 0:
		if err == nil {
			err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
		}
		fmt.Fprintf(stderr, "%s: %v\nSee '%s --help'.\n", name, err, name)
		return codeUsage
	}
	if err := c.run(ctx, stderr, ops); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return codeError
	}
	return 0
}

func (c *command) flags(name string, stderr io.Writer, ops []*operator.Operator) *pflag.FlagSet {
	f := pflag.NewFlagSet(name, pflag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.kubeconfig, "kubeconfig", "",
		"kubeconfig file; by default $KUBECONFIG, the pod's service account, or ~/.kube/config")
	f.StringVar(&c.context, "context", "", "context of the kubeconfig to use")
	f.BoolVar(&c.elect, "leader-elect", false, "work only while elected among all replicas, by a Lease")
	f.StringVar(&c.lease.Name, "leader-elect-resource-name", leaseName(ops),
		"name of the Lease; replicas of another program, or of another release, need another one")
	f.StringVar(&c.lease.Namespace, "leader-elect-resource-namespace", "",
		"namespace of the Lease; by default the pod's, else \"default\"")
	f.StringVar(&c.endpoints.health, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 for none")
	f.StringVar(&c.endpoints.metrics, "metrics-bind-address", ":8080", "address of /metrics; 0 for none")
	f.StringVar(&c.logFormat, "log-format", "text", "text or json")
	f.TextVar(&c.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	return f
}

// leaseName returns the default name of the Lease: the resources of the operators, and the prefixes that are not the
// default. A name that is too long is cut and ends with a hash of the whole.
func leaseName(ops []*operator.Operator) string {
	names := make([]string, len(ops))
	for i, op := range ops {
		names[i] = op.Resource().String()
		if _, prefix, ok := strings.Cut(op.Name(), "@"); ok {
			names[i] += "-" + prefix
		}
	}
	name := strings.Join(names, "-")
	if len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	hash := sha256.Sum256([]byte(name))
	end := hex.EncodeToString(hash[:8])
	return strings.TrimRight(name[:validation.DNS1123SubdomainMaxLength-len(end)-1], "-.") + "-" + end
}

func (c *command) run(ctx context.Context, stderr io.Writer, ops []*operator.Operator) error {
	if err := c.log(stderr); err != nil {
		return err
	}
	cfg, err := c.config()
	if err != nil {
		return err
	}
	serve, err := c.endpoints.listen()
	if err != nil {
		return err
	}
	serving, close := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		err := serve(serving)
		stop(err)
		served <- err
	}()
	defer context.AfterFunc(ctx, func() { c.endpoints.ending.Store(true) })()
	work := func(ctx context.Context) error { return operator.Run(ctx, cfg, ops...) }
	if c.elect {
		err = Elected(ctx, cfg, c.leaseIn(namespaceFile), work)
	} else {
		err = work(ctx)
	}
	close()
	return errors.Join(err, <-served)
}

func (c *command) log(stderr io.Writer) error {
	options := &slog.HandlerOptions{Level: c.logLevel}
	switch c.logFormat {
	case "text":
		slog.SetDefault(slog.New(slog.NewTextHandler(stderr, options)))
	case "json":
		slog.SetDefault(slog.New(slog.NewJSONHandler(stderr, options)))
	default:
		return fmt.Errorf("log format %q: want text or json", c.logFormat)
	}
	klog.SetSlogLogger(slog.Default()) // client-go logs by klog
	return nil
}

// config returns the API server to use: the flag's, else $KUBECONFIG's, else the pod's,
// else kubectl's.
func (c *command) config() (*rest.Config, error) {
	if c.kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" && c.context == "" {
		if cfg, err := rest.InClusterConfig(); err == nil {
			return cfg, nil
		} else if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, err
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: c.context}).ClientConfig()
}

// namespaceFile contains the namespace of a pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// leaseIn returns the Lease, by default in the namespace that file contains.
func (c *command) leaseIn(file string) Lease {
	lease := c.lease
	if lease.Namespace == "" {
		lease.Namespace = "default"
		if text, err := os.ReadFile(file); err == nil {
			lease.Namespace = strings.TrimSpace(string(text))
		}
	}
	return lease
}
