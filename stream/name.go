package stream

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// nameSink writes the names of changed objects.
type nameSink struct {
	out    *bufio.Writer
	prefix string
}

// Names returns a sink that writes one line for each event, "pod/x" or
// "deployment.apps/x", as `kubectl get --watch -o name` does: deletions too, and
// without the namespace.
func Names(out io.Writer, kind schema.GroupKind) Sink {
	return &nameSink{out: bufio.NewWriter(out), prefix: strings.ToLower(kind.String()) + "/"}
}

func (s *nameSink) Write(m Message) error {
	e, ok := m.(Event)
	if !ok {
		return nil
	}
	_, err := fmt.Fprintf(s.out, "%s%s\n", s.prefix, e.Object.Key().Name)
	return err
}

func (s *nameSink) Flush() error { return s.out.Flush() }
