package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errShared is the error of a pooler that gives each transaction another session.
var errShared = errors.New(
	"the address leads to a pooler that shares sessions between transactions (pool_mode=transaction or statement): " +
		"no lock of a writer survives there; use pool_mode=session, or the address of Postgres itself")

// poolerTimeout bounds the wait for a second session of a pooler, which may have one only.
const poolerTimeout = 5 * time.Second

// checkPooler returns errShared for a pooler that shares sessions. A pooler has ids of sessions of its own. If it is
// one, a second connection begins a transaction: if it receives the session of the first one, or the first one then has
// another, sessions are shared.
func (s *Sink) checkPooler(ctx context.Context, config *pgx.ConnConfig) error {
	session, err := backend(ctx, s.conn)
	if err != nil || session == s.conn.PgConn().PID() {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, poolerTimeout)
	defer cancel()
	second, err := pgx.ConnectConfig(waiting, config)
	if err != nil {
		return ctx.Err() // no second session: the first one is ours
	}
	defer second.Close(context.WithoutCancel(ctx))
	tx, err := second.Begin(waiting)
	if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) {
		return errShared // transactions are not allowed
	} else if err != nil {
		return ctx.Err()
	}
	other, err := backend(waiting, tx)
	if err != nil {
		return ctx.Err()
	}
	again, err := backend(ctx, s.conn)
	if err == nil && (other == session || again != session) {
		return errShared
	}
	return err
}

// backend returns the id of the server's process.
func backend(ctx context.Context, q querier) (pid uint32, err error) {
	// Without a prepared statement: another connection's may have its name, in a shared session.
	err = q.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	return pid, err
}
