package stream

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// names writes the names of changed objects.
type names struct {
	out    *bufio.Writer
	prefix string
}

// Names writes one line an event, "pod/x" or "deployment.apps/x", as
// `kubectl get --watch -o name` does: also for a deletion, and without the
// namespace.
func Names(out io.Writer, kind schema.GroupKind) Sink {
	return &names{out: bufio.NewWriter(out), prefix: strings.ToLower(kind.String()) + "/"}
}

func (s *names) Write(m Message) error {
	e, ok := m.(Event)
	if !ok {
		return nil
	}
	_, err := fmt.Fprintf(s.out, "%s%s\n", s.prefix, e.Object.Key().Name)
	return err
}

func (s *names) Flush() error { return s.out.Flush() }
