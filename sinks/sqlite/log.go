package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"time"
)

const (
	// logBytes is the length of the write-ahead log from which on the sink waits for readers.
	logBytes = 64 << 20
	// shortenEvery is how long the sink waits for none after it has waited in vain, unless the log is twice as long.
	shortenEvery = time.Minute
)

// writeAhead is the write-ahead log. SQLite copies it into the file by itself, but begins it anew only at a commit at
// which nobody reads it. While there are readers at each moment, it would grow with all that is written.
type writeAhead struct {
	path  string
	bound int64
	// failed is the length of the log when readers did not end last, and tried when that was.
	failed int64
	tried  time.Time
}

// shorten makes the log empty if it is longer than the bound. It waits for the readers that there are, as long as a
// commit waits for another writer; those that begin meanwhile read the file, and need no log. While one of them reads
// on for longer than that, the log stays.
func (l *writeAhead) shorten(ctx context.Context, conn *sql.Conn) error {
	file, err := os.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || file.Size() <= l.bound || file.Size() < 2*l.failed && time.Since(l.tried) < shortenEvery {
		return err
	}
	var busy, frames, copied int
	err = conn.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &frames, &copied)
	if err != nil && ctx.Err() == nil {
		return err
	}
	if l.failed = 0; busy != 0 {
		l.failed, l.tried = file.Size(), time.Now()
	}
	return nil
}
