package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"

	"github.com/keepwatch/keepwatch/proxy"
)

const topHelp = `Show what a keepwatch proxy does: its server, the resources that it follows, and its heaviest clients.

In a terminal the table is refreshed until it is interrupted; otherwise it is written once. The kubeconfig is
that of the proxy, such as 'keepwatch proxy' writes. Its user needs the permission to get /keepwatch/status.`

// topEvery is how often the table is refreshed.
const topEvery = 2 * time.Second

// newTopCommand returns `keepwatch top`.
func newTopCommand() *cobra.Command {
	config := genericclioptions.NewConfigFlags(true)
	cmd := &cobra.Command{
		Use:                   "top [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "Show what a keepwatch proxy does",
		Long:                  topHelp,
		Example:               "  keepwatch top --kubeconfig keepwatch-proxy.kubeconfig",
		Args:                  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := config.ToDiscoveryClient()
			if err != nil {
				return &exitError{codeUsage, err}
			}
			out := cmd.OutOrStdout()
			file, isFile := out.(*os.File)
			if isFile && term.IsTerminal(int(file.Fd())) {
				return refreshTop(cmd.Context(), client, out, topEvery)
			}
			return writeTop(cmd.Context(), client, out)
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}

// refreshTop draws the table again and again until ctx is done. While the proxy does not answer, it says so above the
// last table.
func refreshTop(ctx context.Context, client discovery.DiscoveryInterface, out io.Writer, every time.Duration) error {
	const home, clearLine, clearBelow = "\x1b[H", "\x1b[K", "\x1b[J"
	var table bytes.Buffer
	first := true
	for {
		var next bytes.Buffer
		err := writeTop(ctx, client, &next)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err == nil:
			table = next
		}
		screen := table.String()
		if err != nil {
			screen = err.Error() + "\n" + screen
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
			return nil
		}
	}
}

// writeTop writes the table once.
func writeTop(ctx context.Context, client discovery.DiscoveryInterface, out io.Writer) error {
	body, err := client.RESTClient().Get().AbsPath("/keepwatch/status").Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err):
		return errors.New("this server is no keepwatch proxy: give the proxy's kubeconfig with --kubeconfig")
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
	fmt.Fprintf(t, "%s %s. %s in use. Answered from memory: %d LIST, %d WATCH, %d GET\n\n",
		s.Server.Address, server, proxy.Size(s.Memory), s.Saved["list"], s.Saved["watch"], s.Saved["get"])
	fmt.Fprintln(t, "RESOURCE\tVERSION\tENCODING\tSTATE\tCONFIRMED\tOBJECTS\tSIZE\tWATCHERS\tRELISTS")
	for _, r := range s.Resources {
		confirmed := "never"
		if r.Confirmed != nil {
			confirmed = max(0, s.Time.Sub(*r.Confirmed)).Round(time.Second).String() + " ago"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%d\t%d\n", r.Name(), r.Version, r.Encoding, r.State, confirmed, r.Objects, proxy.Size(r.Bytes), r.Watchers, r.Relists())
	}
	fmt.Fprintln(t, "\nCLIENT\tRECEIVED\tREQUESTS\tFORWARDED\tOPEN")
	for _, c := range s.Clients {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\n", printable(c.UserAgent), proxy.Size(c.Bytes), c.Requests, c.Forwarded, c.Open)
	}
	return t.Flush()
}

// printable replaces what could control a terminal: clients choose their user agents.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' {
			return '?'
		}
		return r
	}, text)
}
