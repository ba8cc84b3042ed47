package follow

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/shape"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// printed is the output as the receiver of streams.
type printed struct {
	ctx    context.Context
	cancel context.CancelCauseFunc // of ctx
	output outputFormat
	report *syncReport

	stdout    io.Writer
	out       io.Writer   // stdout, canceled with ctx
	file      *outputFile // stdout, if it is a file and a state follows it
	complete  bool        // the last line may be that of a process that was killed
	bookmarks bool
	confirmed bool // the source has confirmed the revision of a stream of the last batch: no event of it shows it

	acknowledgments *acknowledgments // nil without --acknowledge
	sinks           map[stream.Identity]stream.Sink
	streams         []sink.Stream
}

var _ sink.Receiver = (*printed)(nil)

func newPrinted(ctx context.Context, cancel context.CancelCauseFunc, o *watchOptions, output outputFormat,
	stdout io.Writer) *printed {
	return &printed{
		ctx: ctx, cancel: cancel, output: output, stdout: stdout, out: &cancelableWriter{ctx: ctx, out: stdout},
		file: outputFileOf(stdout, o.stateDir), complete: o.stateDir != "" && output.lines, bookmarks: o.bookmarks,
		sinks: map[stream.Identity]stream.Sink{},
	}
}

// acknowledge waits for a line of stdin for each line that is printed.
func (p *printed) acknowledge(stdin io.Reader) {
	p.acknowledgments = readAcknowledgments(stdin, p.cancel)
	p.out = p.acknowledgments.counting(p.out)
}

// Open prepares the output of each type.
func (p *printed) Open(_ context.Context, streams []sink.Stream, _ sink.Delivered) error {
	p.streams = streams
	for _, s := range streams {
		if p.sinks[s.ID] == nil {
			p.sinks[s.ID] = p.output.sink(p.out, p.report.target(s.ID).Target)
		}
	}
	if !p.complete {
		return nil
	}
	p.complete = false
	return completeLine(p.stdout)
}

// Write prints the messages of a batch, and waits for their acknowledgement. It skips the Synced of single types:
// [printed.cut] prints that of all.
func (p *printed) Write(ctx context.Context, batch sink.Batch) error {
	p.confirmed = slices.ContainsFunc(batch.Pieces, func(of sink.Piece) bool {
		return !slices.ContainsFunc(of.Messages, func(m stream.Message) bool {
			e, ok := m.(stream.Event)
			return ok && e.Revision >= of.Cursor
		})
	})
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

// cutLine is the line SYNCED or BOOKMARK.
type cutLine struct {
	Type      string   `json:"type"`
	Revision  string   `json:"revision"`
	Count     *uint64  `json:"count,omitempty"`
	Resources []string `json:"resources"`
}

// cut prints the SYNCED of a line of revisions, and waits for its acknowledgement. A later cut is a BOOKMARK, unless an
// event shows it: one that has moved the cut of a single type.
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
	if !first && !p.confirmed && len(l.Resources) == 1 {
		return
	}
	text, err := json.Marshal(l)
	if err == nil {
		_, err = p.out.Write(append(text, '\n'))
	}
	if err == nil {
		err = p.file.sync()
	}
	if err == nil {
		err = p.acknowledgments.wait(p.ctx)
	}
	if err != nil {
		p.cancel(err)
	}
}

// lines is a sink of lines of JSON, each of which names its resource.
type lines struct {
	out    *bufio.Writer
	origin shape.Origin
}

func newLines(out io.Writer, of *cluster.Target) *lines {
	id := stream.Identity{Resource: of.Name(), Namespace: of.Namespace}
	return &lines{out: bufio.NewWriterSize(out, 256<<10), origin: shape.Origin{ID: id}}
}

func (s *lines) Write(m stream.Message) error {
	text, err := shape.Events.Append(s.out.AvailableBuffer(), s.origin, m)
	if err != nil {
		return err
	}
	_, err = s.out.Write(append(text, '\n'))
	return err
}

func (s *lines) Flush() error { return s.out.Flush() }

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
				return nil, fmt.Errorf("the progress of %s: %w", wanted.ID.Resource, err)
			}
		}
		all = append(all, stored)
	}
	return all, s.Receiver.Open(ctx, streams, sink.Delivered{})
}
