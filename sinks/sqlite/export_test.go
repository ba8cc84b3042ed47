package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// SetSweep replaces sweepRows.
func (s *Sink) SetSweep(rows int) { s.sweep = rows }

// SetCompress replaces wholeTime and minCompressed.
func (s *Sink) SetCompress(whole time.Duration, least int) { s.whole, s.least = whole, least }

// SetPeaks replaces the number of changes of a resource between peaks.
func (s *Sink) SetPeaks(every int) { s.peaks.Every = every }

// SetFill replaces fillRows.
func (s *Sink) SetFill(rows int) { s.peaks.Rows = rows }

// Filling reports whether the peaks of an earlier version are not complete.
func (s *Sink) Filling() bool { return s.peaks.Filling(time.Now()) != nil }

// SetLog replaces logBytes.
func (s *Sink) SetLog(bytes int64) { s.log.bound = bytes }

// CloseIdle closes the connections that no snapshot has, as database/sql does with those whose read was interrupted.
func (h *History) CloseIdle() { h.last.db.SetMaxIdleConns(0) }

// Plans returns how SQLite reads the states of each query.
func (h *History) Plans(ctx context.Context, queries ...sink.StateQuery) (all [][]string, err error) {
	return all, h.Snapshot(ctx, func(tables sink.Snapshot) error {
		s := tables.(*snapshot)
		for _, q := range queries {
			var plan []string
			text, args := s.statesQuery(q)
			if err := s.query(ctx, func(row *sql.Rows) error {
				var id, parent, unused int
				var detail string
				err := row.Scan(&id, &parent, &unused, &detail)
				plan = append(plan, detail)
				return err
			}, `EXPLAIN QUERY PLAN `+text, args...); err != nil {
				return err
			}
			all = append(all, plan)
		}
		return nil
	})
}
