//go:build !unix

package follow

import (
	"context"
	"io"
)

// awaitReaderEnd does nothing where no output shows its readers: the next write notices the end.
func awaitReaderEnd(context.Context, io.Writer, func()) {}
