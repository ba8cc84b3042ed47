package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/keepwatch/keepwatch/sinks/statedir"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/shape"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// severalTypes reports whether the arguments name several types: a list or a pattern.
func severalTypes(args []string) bool { return len(args) > 0 && strings.ContainsAny(args[0], ",*") }

// runSeveral prints the changes of several types: it is keepwatch sync with the output as its sink.
func (o *watchOptions) runSeveral(ctx context.Context, args []string, output outputFormat, stdout,
	stderr io.Writer) error {
	settings, err := o.several(args)
	if err != nil {
		return &exitError{codeUsage, err}
	}
	all := &syncOptions{
		resourceFlags: o.resourceFlags, representation: output.representation, idleTimeout: o.idleTimeout,
		untilSynced: o.untilSynced, includeSecrets: true,
	}
	report := newSyncReport(stderr, "")
	report.quiet = output.data
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	open := func() (sink.Sink, error) {
		p := &printed{
			report: report, cancel: cancel, output: output, stdout: stdout,
			file: outputFileOf(stdout, o.stateDir), acknowledgments: o.acknowledgments,
			out:      o.acknowledgments.counting(&cancelableWriter{ctx: ctx, out: stdout}),
			complete: o.stateDir != "" && output.lines, bookmarks: o.bookmarks, sinks: map[stream.Identity]stream.Sink{},
		}
		if output.data {
			report.onCut = p.cut
		}
		return o.severalState(p)
	}
	return all.follow(ctx, settings.Resources, destination{open: open, report: report,
		started: func(*transfer.Transfer) {}})
}

// several returns the types of the arguments.
func (o *watchOptions) several(args []string) (*syncSettings, error) {
	if len(args) > 1 {
		return nil, fmt.Errorf("a name can't be combined with several types: give TYPE,TYPE or TYPE NAME, not %q",
			strings.Join(args, " "))
	}
	types := &syncOptions{resourceFlags: o.resourceFlags}
	if err := types.addArguments(args); err != nil {
		return nil, err
	}
	return &types.settings, types.settings.completeResources()
}

// severalState returns the sink of a receiver: with --state its streams are stored in the folder.
func (o *watchOptions) severalState(r sink.Receiver) (sink.Sink, error) {
	if o.stateDir == "" {
		return &unstored{Receiver: r, states: map[stream.Identity]stream.State{}}, nil
	}
	if _, err := os.Stat(filepath.Join(o.stateDir, "stream.db")); err == nil {
		return nil, fmt.Errorf(
			"state directory %s has the state of one type: use another directory for several, or delete this one to begin anew",
			o.stateDir)
	}
	return statedir.New(o.stateDir, r), nil
}

// checkSingleState returns an error for a folder that has the state of several types.
func checkSingleState(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "sync.json")); err == nil {
		return fmt.Errorf(
			"state directory %s has the state of several types: use another directory for one, or delete this one to begin anew",
			dir)
	}
	return nil
}

// unstored is the sink of a receiver whose streams are lost with the process.
type unstored struct {
	sink.Receiver
	states map[stream.Identity]stream.State
}

// Open opens the receiver, and returns what the streams of this process have delivered.
func (s *unstored) Open(ctx context.Context, streams []sink.Stream) (all []sink.Stored, err error) {
	for _, wanted := range streams {
		stored := sink.Stored{State: s.states[wanted.ID]}
		if stored.State == nil {
			stored.State = stream.InMemory()
			s.states[wanted.ID] = stored.State
		}
		if note, _ := stream.Committed(stored.State); note != "" {
			if err := json.Unmarshal([]byte(note), &stored.Progress); err != nil {
				return nil, err
			}
		}
		all = append(all, stored)
	}
	return all, s.Receiver.Open(ctx, streams, sink.Delivered{})
}

// printed is the output as the receiver of several types.
type printed struct {
	report    *syncReport
	cancel    context.CancelCauseFunc // of the transfer
	output    outputFormat
	stdout    io.Writer
	out       io.Writer // stdout, canceled with the command
	complete  bool      // the last line may be that of a process that was killed
	bookmarks bool
	sinks     map[stream.Identity]stream.Sink
	streams   []sink.Stream

	file            *outputFile
	acknowledgments *acknowledgments
}

var _ sink.Receiver = (*printed)(nil)

// Open prepares the output of each type.
func (p *printed) Open(_ context.Context, streams []sink.Stream, _ sink.Delivered) error {
	p.streams = streams
	for _, s := range streams {
		if p.sinks[s.ID] == nil {
			p.sinks[s.ID] = p.sink(s.ID)
		}
	}
	if !p.complete {
		return nil
	}
	p.complete = false
	return completeLine(p.stdout)
}

func (p *printed) sink(id stream.Identity) stream.Sink {
	if p.output.data {
		return &typedLines{out: bufio.NewWriterSize(p.out, 64<<10), origin: shape.Origin{ID: id}}
	}
	return p.output.sink(p.out, p.report.target(id).resourceTarget)
}

// Write prints the messages of a batch, and waits for their acknowledgement. It skips the Synced of single types:
// [printed.cut] prints that of all.
func (p *printed) Write(ctx context.Context, batch sink.Batch) error {
	for _, piece := range batch.Pieces {
		out := p.sinks[p.streams[piece.Stream].ID]
		for _, m := range piece.Messages {
			if _, ok := m.(stream.Synced); ok {
				continue
			}
			if err := out.Write(m); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	if err := p.file.sync(); err != nil {
		return err
	}
	return p.acknowledgments.wait(ctx)
}

// Close does nothing: the output stays open for the next Open.
func (p *printed) Close() error   { return nil }
func (p *printed) String() string { return "keepwatch watch" }

// cutLine is the line SYNCED or BOOKMARK of several types.
type cutLine struct {
	Type      string   `json:"type"`
	Revision  string   `json:"revision"`
	Count     *uint64  `json:"count,omitempty"`
	Resources []string `json:"resources"`
}

// cut prints the SYNCED of a line of revisions, and a BOOKMARK for later cuts.
func (p *printed) cut(status transfer.Status, line int, cut sink.Cut, first bool) {
	if !first && !p.bookmarks {
		return
	}
	l := cutLine{Type: "BOOKMARK", Revision: cut.Revision.String()}
	count := uint64(0)
	if first {
		l.Type, l.Count = "SYNCED", &count
	}
	for _, r := range status.Resources {
		if r.Line == line {
			l.Resources = append(l.Resources, r.ID.Resource)
			count += r.Objects
		}
	}
	text, err := json.Marshal(l)
	if err == nil {
		_, err = p.out.Write(append(text, '\n'))
	}
	if err != nil {
		p.cancel(err)
	}
}

// typedLines is a sink of lines of JSON that all name their resource.
type typedLines struct {
	out    *bufio.Writer
	origin shape.Origin
}

func (s *typedLines) Write(m stream.Message) error {
	text, err := shape.Events.Append(s.out.AvailableBuffer(), s.origin, m)
	if err == nil {
		_, err = s.out.Write(append(text, '\n'))
	}
	return err
}

func (s *typedLines) Flush() error { return s.out.Flush() }
