package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/messages"
	"github.com/keepwatch/keepwatch/server/proxy"
)

const topHelp = `Show what a keepwatch proxy does: its server, the resources that it follows, which reads memory has
answered, and the heaviest clients.

In a terminal (not with TERM=dumb) the table is refreshed until it is interrupted; otherwise it is written once. The
kubeconfig is that of the proxy, such as 'keepwatch proxy' writes. Any other user needs the
permission to get /keepwatch/status: nonResourceURLs of a ClusterRole, as
'keepwatch proxy --print-rbac' prints.`

// topEvery is how often the table is refreshed.
const topEvery = 2 * time.Second

// NewTopCommand returns `keepwatch top`.
func NewTopCommand() *cobra.Command {
	config := genericclioptions.NewConfigFlags(true)
	cmd := &cobra.Command{
		Use:                   "top [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "Show what a keepwatch proxy does",
		Long:                  topHelp,
		Example:               "  keepwatch top --kubeconfig keepwatch-proxy.kubeconfig",
		Args:                  exit.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := cluster.Connection(config); err != nil {
				return err
			}
			client, err := config.ToDiscoveryClient()
			if err != nil {
				return exit.Usage(err)
			}
			out := cmd.OutOrStdout()
			err = cluster.Leave(cmd.Context(), func() error {
				if messages.Redraws(out) {
					file := out.(*os.File)
					size := func() (int, int, error) { return term.GetSize(int(file.Fd())) }
					return RefreshTop(cmd.Context(), client, out, size, topEvery)
				}
				return writeTop(cmd.Context(), client, out)
			})
			if errors.As(err, new(cluster.Left)) {
				return &exit.Error{Code: exit.CodeInterrupted}
			}
			return err
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}

// RefreshTop draws the table again and again until ctx is done. While the proxy does not answer, it says so above the
// last table. What does not fit into the terminal is left out: size returns its columns and lines.
func RefreshTop(ctx context.Context, client discovery.DiscoveryInterface, out io.Writer, size func() (int, int, error),
	every time.Duration) error {
	const home, clearLine, clearBelow = "\x1b[H", "\x1b[K", "\x1b[J"
	var table bytes.Buffer
	first := true
	for {
		var next bytes.Buffer
		err := writeTop(ctx, client, &next)
		switch {
		case ctx.Err() != nil:
			_, err := io.WriteString(out, "\n") // what follows, such as a prompt, does not belong to the table
			return err
		case err != nil && first:
			return err
		case err == nil:
			table = next
		}
		screen := table.String()
		if err != nil {
			screen = printable(err.Error()) + "\n" + screen
		}
		if width, height, err := size(); err == nil {
			screen = fit(screen, width, height)
		}
		if first {
			screen = "\x1b[2J" + home + screen
		}
		first = false
		screen = home + strings.ReplaceAll(screen, "\n", clearLine+"\n") + clearBelow
		if _, err := io.WriteString(out, screen); err != nil {
			return err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
		}
	}
}

// fit cuts lines that are wider than a terminal, and those that it has no place for: it would scroll, and every refresh
// leave a copy behind. The last place says how many are missing. A character of the table takes one column, and the
// last column stays empty: clearing the rest of a full line clears its last character. A size of 0 is unknown.
func fit(screen string, width, height int) string {
	lines := strings.Split(strings.TrimSuffix(screen, "\n"), "\n")
	if place := height - 1; height > 0 && len(lines) > height {
		lines = append(lines[:place], fmt.Sprintf("%d more lines: enlarge the terminal", len(lines)-place))
	}
	for i, line := range lines {
		if width > 0 && len(line) >= width {
			lines[i] = line[:width-1]
		}
	}
	return strings.Join(lines, "\n")
}

// writeTop writes the table once.
func writeTop(ctx context.Context, client discovery.DiscoveryInterface, out io.Writer) error {
	body, err := client.RESTClient().Get().AbsPath("/keepwatch/status").SetHeader("Accept",
		"application/json").Do(ctx).Raw()
	var answered metav1.Status
	switch {
	case apierrors.IsForbidden(err):
		return errors.New(
			"the user may not see what the proxy does: a ClusterRole must allow the verb get on the nonResourceURLs /keepwatch/status, as 'keepwatch proxy --print-rbac' prints")
	case apierrors.IsUnauthorized(err):
		return errors.New(
			"the proxy does not know the user: give the kubeconfig that it has written at its last start with --kubeconfig, or a user of the cluster")
	case apierrors.IsNotFound(err):
		return errors.New("this server is no keepwatch proxy: give the proxy's kubeconfig with --kubeconfig")
	case err != nil && json.Unmarshal(body, &answered) == nil && answered.Message != "": // client-go says "unknown"
		return errors.New(answered.Message)
	case err != nil:
		return err
	}
	var s proxy.Status
	if err := json.Unmarshal(body, &s); err != nil {
		return fmt.Errorf("the proxy's status: %w", err)
	}
	return printTop(out, s)
}

func printTop(out io.Writer, s proxy.Status) error {
	server := "answers"
	if s.Server.Failing != nil {
		server = fmt.Sprintf("has not answered for %s", s.Time.Sub(*s.Server.Failing).Round(time.Second))
	}
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "%s %s. %s in use. Answered from memory: %d LIST, %d WATCH, %d GET\n",
		s.Server.Address, server, proxy.Size(s.Memory), s.Saved["list"], s.Saved["watch"], s.Saved["get"])
	for _, r := range s.Unfollowed {
		fmt.Fprintf(t, "%s is to be cached, and is not: %s\n", printable(r.Resource), printable(r.Reason))
	}
	fmt.Fprintln(t)
	fmt.Fprintln(t, "RESOURCE\tVERSION\tENCODING\tSTATE\tCONFIRMED\tOBJECTS\tSIZE\tWATCHERS\tRELISTS")
	for _, r := range s.Resources {
		confirmed := "never"
		if r.Confirmed != nil {
			confirmed = max(0, s.Time.Sub(*r.Confirmed)).Round(time.Second).String() + " ago"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s\n", r.Name(), r.Version, r.Encoding, r.State, confirmed, r.Objects,
			proxy.Size(r.Bytes), r.Watchers, r.Relisted())
	}
	fmt.Fprintln(t, "\nFROM MEMORY\tVERSION\tLIST\tWATCH\tGET\tSENT\t15 MIN\tFORWARDED")
	for _, r := range s.Reads {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Name(), r.Version, r.Of("list"), r.Of("watch"), r.Of("get"),
			r.Sent(), proxy.Bars(r.Recent), proxy.Counts(r.Why))
	}
	fmt.Fprintln(t, "\nCLIENT\tRECEIVED\tREQUESTS\tOPEN\t15 MIN\tFORWARDED\tADVICE")
	for _, c := range s.Clients {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", printable(c.UserAgent), proxy.Size(c.Bytes), c.Requests, c.Open,
			proxy.Bars(c.Recent), proxy.Counts(c.Why), proxy.Counts(c.Advice))
	}
	if len(s.Reasons) > 0 {
		fmt.Fprintln(t, "\nREASON\tWHAT IT MEANS")
	}
	for _, why := range slices.Sorted(maps.Keys(s.Reasons)) {
		fmt.Fprintf(t, "%s\t%s\n", printable(why), printable(s.Reasons[why]))
	}
	return t.Flush()
}

// printable replaces what is no printable ASCII: it could control a terminal, or be wider than a column. Clients choose
// their user agents.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}
