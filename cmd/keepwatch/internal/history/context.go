package history

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/source/history"
)

// newContextCommand returns `keepwatch history context`.
func newContextCommand() *cobra.Command {
	var file, name string
	speed := 1.0
	cmd := &cobra.Command{
		Use:                   "context MOMENT",
		DisableFlagsInUseLine: true,
		Short:                 "Add a moment to the kubeconfig of serve --history, as a context",
		Long: `Add a context to the kubeconfig that serve --history has written: kubectl --context reads the cluster as it was at the moment.

The context has the name of the moment. A time of a day, and one before now, is the time that it is when the command runs.`,
		Example: `  keepwatch history context 10:42
  kubectl --kubeconfig keepwatch.kubeconfig --context 10:42 get pods -A`,
		Args: exit.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := history.ParseMoment(args[0], time.Now())
			if err != nil {
				return exit.Usage(err)
			}
			if !(speed >= 0 && speed <= history.MaxSpeed) {
				return exit.Usage(fmt.Errorf("--speed %v: give a number from 0 to %d", speed, int(history.MaxSpeed)))
			}
			return addContext(file, cmp.Or(name, args[0]), m, speed, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&file, "kubeconfig", "./keepwatch.kubeconfig", "the kubeconfig that serve --history has written")
	cmd.Flags().StringVar(&name, "name", "", "the name of the context (default: the moment)")
	cmd.Flags().Float64Var(&speed, "speed", speed,
		"how many times faster than it was recorded watches continue from the moment; 0 is as fast as they read")
	return cmd
}

// addContext adds the context of a moment to a kubeconfig.
func addContext(file, name string, m history.Moment, speed float64, out io.Writer) error {
	k, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--kubeconfig: the file %s does not exist: keepwatch serve --history writes it", file)
	}
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	now := k.Clusters[nowContext]
	if now == nil || !historiesOnly(k) {
		return fmt.Errorf("--kubeconfig: %s is not of keepwatch serve --history", file)
	}
	if name == nowContext && !m.IsNow() {
		return exit.Usage(fmt.Errorf("the context %s is the newest state: give another --name", name))
	}
	path := "/at/" + m.String()
	if speed != 1 {
		path += fmt.Sprintf("/speed/%v", speed)
	}
	cluster := *now
	cluster.Server = strings.TrimSuffix(cluster.Server, "/at/now") + path
	k.Clusters[name] = &cluster
	addTo(k, name)
	if err := writeContexts(file, k, "--kubeconfig"); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "context %q is %s: kubectl --kubeconfig %s --context %s get pods -A\n", name, m, file, name)
	if err != nil {
		return exit.WriteError(err)
	}
	return nil
}
