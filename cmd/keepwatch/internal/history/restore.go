package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// newRestoreCommand returns `keepwatch history restore`.
func newRestoreCommand() *cobra.Command {
	o := &restoreOptions{flags: newFlags(), at: "now"}
	o.config = genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300).WithDiscoveryQPS(50).
		WithWrapConfigFn(func(config *rest.Config) *rest.Config {
			config.UserAgent, config.QPS = cluster.ClientName(), -1
			return config
		})
	cmd := &cobra.Command{
		Use:                   "restore (TYPE/NAME | TYPE[,TYPE...] [-l SELECTOR]) --at MOMENT --from DATABASE",
		DisableFlagsInUseLine: true,
		Short:                 "Write the state of a moment back to the cluster",
		Long: `Write the state of objects at a moment back to the cluster of the kubeconfig, by server-side apply
as the manager keepwatch-restore.

Restored is what a manager has written, and not what the server has set: no status, UIDs, cluster
IPs or nodes of pods. Owners are written before what they own, and owner references name the owners
that are there now. Fields that were added since stay.

Each object is tried with a dry run first. What cannot be restored is named before anything is
written: conflicts with managers (--force-conflicts takes their fields over), refused objects,
missing namespaces, objects whose deletion is not finished; then nothing is. Missing owners, volumes
of claims, and finalizers are named, too, and do not hinder.

If stdout is a terminal, --dry-run is the default: nothing is written without --dry-run=false.`,
		Example: `  keepwatch history restore deployment/web -n shop --at 10:40 --from sqlite:state.db --dry-run
  keepwatch history restore deployments,configmaps -n shop -l app=web --at -15m --from sqlite:state.db`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check("text", "json", "yaml"); err != nil {
				return err
			}
			if !cmd.Flags().Changed("at") {
				return exit.Usage(errors.New("give the moment whose state is restored: --at 10:40"))
			}
			if file, ok := cmd.OutOrStdout().(*os.File); ok && !cmd.Flags().Changed("dry-run") {
				o.dryRun = term.IsTerminal(int(file.Fd()))
			}
			return o.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	o.config.AddFlags(flags)
	flags.StringVar(&o.from, "from", "", "the database that keepwatch sync has written: "+Addresses)
	flags.StringVarP(&o.output, "output", "o", "text", "the output: text, json or yaml")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false,
		"all namespaces, regardless of the context and --namespace")
	flags.StringVar(&o.at, "at", o.at, "the moment: 2026-11-28T10:42:00Z, 10:42, -15m or revision/4711")
	flags.StringVarP(&o.selector, "selector", "l", "", "only objects with these labels at the moment")
	flags.BoolVar(&o.dryRun, "dry-run", false,
		"write nothing, and show what would be written (default true if stdout is a terminal)")
	flags.BoolVar(&o.force, "force-conflicts", false, "take fields over that other managers have written")
	return cmd
}

// restoreOptions are what is restored, and how.
type restoreOptions struct {
	*flags
	at, selector  string
	dryRun, force bool
}

func (o *restoreOptions) run(ctx context.Context, args []string, out, stderr io.Writer) error {
	m, err := Moment("at", o.at)
	if err != nil {
		return err
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return exit.Usage(fmt.Errorf("--selector %q: %w", o.selector, err))
	}
	var states []restorable
	err = o.view(ctx, func(v *history.View) error {
		states, err = o.states(ctx, v, args, m, selector)
		return err
	})
	if err != nil {
		return err
	}
	r, err := o.restoration(states)
	if err != nil {
		return err
	}
	return o.restore(ctx, r, out, stderr)
}

// restore writes the objects of a restoration, unless one cannot be written, and reports what it has done.
func (o *restoreOptions) restore(ctx context.Context, r *restoration, out, stderr io.Writer) error {
	if err := cluster.Leave(ctx, func() error { return r.prepare(ctx) }); err != nil {
		return err
	}
	refused := r.print(stderr)
	switch {
	case refused > 0:
		return fmt.Errorf("nothing was written: %d of %d objects cannot be restored", refused, len(r.objects))
	case !o.dryRun:
		err := cluster.Leave(ctx, func() error { return r.write(ctx) })
		if errors.As(err, new(cluster.Left)) {
			r = &restoration{objects: r.objects[:r.written.Load()]} // the others are still in use
			err = fmt.Errorf("%w: perhaps more was written than the report has", err)
		}
		if err != nil {
			return errors.Join(err, o.report(out, r)) // what was written until then
		}
	}
	if err := o.report(out, r); err != nil {
		return err
	}
	if o.dryRun {
		fmt.Fprintln(stderr, "keepwatch: nothing was written: --dry-run=false writes it")
	}
	return nil
}

// restorable is a state, and whether some of its fields were not stored: to apply it would remove those that an earlier
// restoration has written, and would create an object without them.
type restorable struct {
	sink.State
	partial bool
}

// states returns the selected states at a moment.
func (o *restoreOptions) states(ctx context.Context, v *history.View, args []string, m history.Moment,
	selector labels.Selector) (all []restorable, err error) {
	selected, err := o.selected(ctx, v, args)
	if err != nil {
		return nil, err
	}
	var streams []sink.Status
	for _, of := range selected {
		stream, err := v.StreamOf(of.Resource, of.Namespace)
		if err != nil {
			return nil, err
		}
		streams = append(streams, stream)
	}
	points, err := v.Points(ctx, m, false, streams...)
	if err != nil {
		return nil, err
	}
	for i, of := range selected {
		first := len(all)
		err := v.EachAt(ctx, of, points.Of(streams[i]), func(s sink.State) error {
			var about struct {
				Metadata struct {
					Labels            labels.Set
					CreationTimestamp *string
				}
			}
			if err := json.Unmarshal(s.Object, &about); err != nil {
				return fmt.Errorf("%s: %w", objectName(&s), err)
			}
			if selector.Matches(about.Metadata.Labels) {
				// Every API server sets a creationTimestamp. Databases from before Partial do not have it.
				all = append(all, restorable{s, about.Metadata.CreationTimestamp == nil})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		slices.SortFunc(all[first:], func(a, b restorable) int { return a.Key.Compare(b.Key) })
		for i := range all[first:] {
			one := &all[first+i]
			t, err := v.TypeAt(ctx, of.Resource, one.SeenFrom)
			if err != nil {
				return nil, err
			}
			one.partial = one.partial || t != nil && t.Partial
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the history has no such object at %s", o.at)
	}
	return all, nil
}

// selected returns what the arguments name: TYPE/NAME, or types.
func (o *restoreOptions) selected(ctx context.Context, v *history.View,
	args []string) (all []history.Objects, err error) {
	if len(args) != 1 || !strings.Contains(args[0], ",") {
		of, _, err := o.objects(ctx, v, args)
		if err == nil && of.Name != "" && o.selector != "" {
			err = exit.Usage(errors.New("a name and --selector can't be combined"))
		}
		return []history.Objects{of}, err
	}
	for name := range strings.SplitSeq(args[0], ",") {
		if strings.Contains(name, "/") {
			return nil, exit.Usage(fmt.Errorf("give several types, or one object, not %q", args[0]))
		}
		of, _, err := o.objects(ctx, v, []string{name})
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, of) { // under another name of the type
			all = append(all, of)
		}
	}
	return all, nil
}

// restoration returns the restoration of states.
func (o *restoreOptions) restoration(states []restorable) (*restoration, error) {
	config, err := cluster.Connection(o.config)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper, err := o.config.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	r := &restoration{client: client, mapper: mapper, force: o.force}
	for i := range states {
		one, err := newRestored(&states[i].State)
		if err != nil {
			return nil, err
		}
		if states[i].partial {
			one.problems = append(one.problems, "the history has some of its fields only: sync --fields")
		}
		r.objects = append(r.objects, one)
	}
	r.sort()
	return r, nil
}

// RestoredObject is an object as JSON and YAML show it.
type RestoredObject struct {
	Resource  string   `json:"resource"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Result    string   `json:"result"`
	Notes     []string `json:"notes,omitempty"`
}

// report writes what was done with each object.
func (o *restoreOptions) report(out io.Writer, r *restoration) error {
	all := []RestoredObject{}
	for _, one := range r.objects {
		all = append(all, RestoredObject{one.state.Resource, one.state.Key.Namespace, one.state.Key.Name, one.result,
			one.notes})
	}
	if o.output != "text" {
		return writeData(out, o.output, map[string]any{"objects": all, "dryRun": o.dryRun})
	}
	suffix := ""
	if o.dryRun {
		suffix = " (dry run)"
	}
	var text strings.Builder
	for _, one := range r.objects {
		fmt.Fprintf(&text, "%s %s%s\n", objectName(one.state), one.result, suffix)
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return exit.WriteError(err)
	}
	return nil
}

// print writes the notes and problems of the objects to stderr, and returns how many cannot be restored.
func (r *restoration) print(stderr io.Writer) (refused int) {
	for _, one := range r.objects {
		for _, note := range slices.Concat(one.notes, one.problems) {
			fmt.Fprintf(stderr, "keepwatch: %s: %s\n", objectName(one.state), printable(note))
		}
		if len(one.problems) > 0 {
			refused++
		}
	}
	return refused
}
