package follow

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
)

// errNoReader ends a stream whose output nobody reads any more.
var errNoReader = &exit.Error{Code: exit.CodeNoReader}

// whileRead calls write with a context that ends when out has no reader any more. The process then ends by SIGPIPE, as
// it does at a write.
func whileRead(ctx context.Context, out io.Writer, write func(context.Context) error) error {
	reading, end := context.WithCancelCause(ctx)
	var awaiting sync.WaitGroup
	awaiting.Go(func() { awaitReaderEnd(reading, out, func() { end(errNoReader) }) })
	err := write(reading)
	end(nil)
	awaiting.Wait()
	if errors.Is(err, errNoReader) {
		_, _ = io.WriteString(out, "\n") // the signal is that of a write to stdout
	}
	return err
}
