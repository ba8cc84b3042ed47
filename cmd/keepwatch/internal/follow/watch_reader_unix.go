//go:build unix

package follow

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// awaitReaderEnd calls end when the reader of a pipe or socket has closed it: a process whose parent was killed would
// otherwise live until its next write. It returns when ctx is done. It does nothing for other outputs: a file does not
// show its readers.
func awaitReaderEnd(ctx context.Context, out io.Writer, end func()) {
	file, ok := out.(*os.File)
	if !ok {
		return
	}
	if info, err := file.Stat(); err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return
	}
	done, cancel, err := os.Pipe()
	if err != nil {
		return // the next write notices the end
	}
	defer done.Close()
	stop := context.AfterFunc(ctx, func() { cancel.Close() })
	defer func() {
		if stop() {
			cancel.Close()
		}
	}()
	const closed = unix.POLLERR | unix.POLLHUP | unix.POLLNVAL
	for polled := []unix.PollFd{{Fd: int32(file.Fd())}, {Fd: int32(done.Fd()), Events: unix.POLLIN}}; ctx.Err() == nil; {
		if _, err := unix.Poll(polled, -1); err != nil && err != unix.EINTR {
			return
		}
		if polled[0].Revents&closed != 0 {
			end()
			return
		}
	}
}
