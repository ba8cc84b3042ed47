package files

import (
	"errors"
	"syscall"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// failure makes an error that another attempt may not meet a [sink.Unavailable]: a full disk, or one that fails.
// The next Open repairs what the batch has left.
func (d *Directory) failure(err error) error {
	if sink.DiskFull(err) || errors.Is(err, syscall.EIO) {
		return sink.Unavailablef("%s: %w", d, err)
	}
	return err
}
