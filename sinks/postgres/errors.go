package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// retried are the classes and codes of SQLSTATE that may be gone at another attempt.
var retried = []string{
	"08",    // connection
	"40",    // rolled back: deadlock, serialization
	"53",    // insufficient resources: disk full, too many connections
	"57",    // operator intervention: shutdown, restart, cancel
	"58",    // system error
	"25006", // read-only: the server is a replica until it is promoted
	"55P03", // lock not available
}

// configured are the codes that depend on the configuration of the server: credentials, the
// name of the database, permissions. They end a start, and are retried later.
var configured = []string{"28", "3D", "42501"}

// unusable is an error about the schema of the address. It ends a start, and is retried later, as those of configured.
type unusable struct{ error }

// errTakenOver is the error of a writer that another one has replaced.
var errTakenOver = sink.Unavailablef("another keepwatch sync has taken over this schema")

// errDeleted is the error of a sink whose tables are gone. It is no [sink.Unavailable]: another attempt would store all
// objects anew, and the past would be lost, without a word.
var errDeleted = errors.New(
	"the tables were deleted while they were in use: start again to make them and to store everything anew")

// missing are the codes of a table and of a schema that do not exist.
var missing = []string{"42P01", "3F000"}

// isOneOf reports whether a code is one of several, or of a class of them.
func isOneOf(code string, all []string) bool {
	return slices.ContainsFunc(all, func(prefix string) bool {
		return code == prefix || len(prefix) == 2 && strings.HasPrefix(code, prefix)
	})
}

// failure makes an error that another attempt may not meet a [sink.Unavailable].
func (s *Sink) failure(err error) error {
	named := fmt.Errorf("postgres: %w", err)
	if reported := (*pgconn.PgError)(nil); errors.As(err, &reported) {
		// PgBouncer's, with the code of a broken connection
		if strings.Contains(reported.Message, "unsupported startup parameter") {
			return fmt.Errorf(
				"postgres: the pooler refuses a parameter of the address: remove it, or name it in ignore_startup_parameters: %w",
				err)
		}
		switch {
		case s.opened && isOneOf(reported.Code, missing):
			return fmt.Errorf("postgres: %w: %w", errDeleted, err)
		case reported.Code == "42P07": // duplicate_table: of a view, too
			return fmt.Errorf("postgres: a table or view of another program is in the way: rename it, or give another schema "+
				"in the address, with search_path: %w", err)
		}
		if isOneOf(reported.Code, retried) || s.opened && isOneOf(reported.Code, configured) {
			return &sink.Unavailable{Err: named}
		}
		return named
	}
	connecting := errors.As(err, new(*pgconn.ConnectError))
	if connecting || s.opened && errors.As(err, new(unusable)) || s.conn != nil && s.conn.IsClosed() {
		return &sink.Unavailable{Err: named}
	}
	return named
}
