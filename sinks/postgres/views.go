package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keepwatch/keepwatch/sinks/internal/history"
)

const (
	// What cannot be made to read a view instead of a table, or would not hold for it.
	selectBlocking = `SELECT coalesce((SELECT pg_describe_object('pg_class'::regclass, ev_class, 0) FROM pg_rewrite
			WHERE classid = 'pg_rewrite'::regclass AND oid = objid AND ev_class <> refobjid), pg_describe_object(classid, objid, objsubid))
		FROM pg_depend
		WHERE refclassid = 'pg_class'::regclass AND refobjid = 'resources'::regclass AND (
			classid IN ('pg_policy'::regclass, 'pg_publication_rel'::regclass, 'pg_proc'::regclass)
			OR classid = 'pg_rewrite'::regclass AND 'v' <> (SELECT relkind FROM pg_rewrite r JOIN pg_class v ON v.oid = ev_class
				WHERE r.oid = objid))
		ORDER BY 1 LIMIT 1`
	selectViews = `SELECT DISTINCT v.oid, v.oid::regclass::text, relowner::regrole::text, coalesce('WITH (' || array_to_string(reloptions, ', ') || ')', ''),
			pg_get_viewdef(v.oid)
		FROM pg_depend d JOIN pg_rewrite r ON r.oid = objid JOIN pg_class v ON v.oid = ev_class
		WHERE classid = 'pg_rewrite'::regclass AND refclassid = 'pg_class'::regclass AND refobjid = 'resources'::regclass
			AND NOT (relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND relname = ANY($1))
		ORDER BY v.oid`
	// GRANT statements that give the view the SELECT privileges of the table and of its columns.
	selectGrants = `SELECT format('GRANT SELECT%s ON resources TO %s%s', of, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END,
			CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END)
		FROM (SELECT '' AS of, a.* FROM pg_class, aclexplode(relacl) a WHERE oid = 'states'::regclass
			UNION ALL SELECT format(' (%I)', attname), a.* FROM pg_attribute, aclexplode(attacl) a WHERE attrelid = 'states'::regclass) granted
		WHERE privilege_type = 'SELECT' AND grantee <> (SELECT oid FROM pg_roles WHERE rolname = current_user)`
)

// userView is a view of a user that reads the table resources.
type userView struct{ name, owner, options, definition string }

// cannotFollow makes an error that another attempt would meet again a sentence about a view.
func (v userView) cannotFollow(err error) error {
	if reported, ok := errors.AsType[*pgconn.PgError](err); ok && isOneOf(reported.Code, retried) {
		return err
	}
	return fmt.Errorf("the table resources becomes a view, and the view %s cannot follow: drop it, start again, and make "+
		"it anew: %w", v.name, err)
}

// lockViews locks the views of users that read the table resources of a format. A query of a view locks the view before
// the table. A migration that locked the table first could deadlock with it, and Postgres would cancel one of them.
func lockViews(ctx context.Context, tx pgx.Tx, format int) error {
	views, err := viewsOf(ctx, tx, format)
	if err != nil {
		return err
	}
	for _, v := range views {
		// LOCK would lock all that the view reads, for which its owner may have no right. This changes nothing.
		if _, err := tx.Exec(ctx, "ALTER VIEW "+v.name+" OWNER TO "+v.owner); err != nil {
			return v.cannotFollow(err)
		}
	}
	return nil
}

// viewsOf returns the views of users that read the table resources of a format. Those of this package read current
// states alone, which the table states has.
func viewsOf(ctx context.Context, tx pgx.Tx, format int) ([]userView, error) {
	var blocking string
	switch err := tx.QueryRow(ctx, selectBlocking).Scan(&blocking); err {
	case pgx.ErrNoRows:
	case nil:
		return nil, unusable{fmt.Errorf("the table resources becomes a view: drop the %s, start again, and make it anew",
			blocking)}
	default:
		return nil, err
	}
	streams, err := statusIn(ctx, tx, format)
	if err != nil {
		return nil, err
	}
	own := []string{"objects"}
	for _, s := range streams {
		own = append(own, history.ViewName(s.ID.Resource))
	}
	rows, err := tx.Query(ctx, selectViews, own)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (v userView, err error) {
		return v, row.Scan(nil, &v.name, &v.owner, &v.options, &v.definition)
	})
}

// redirect makes the views of users, which continue to read the table under its new name, read the view resources, and
// grants the view the SELECT privileges of the table.
func redirect(ctx context.Context, tx pgx.Tx, views []userView) error {
	rows, err := tx.Query(ctx, selectGrants)
	if err != nil {
		return err
	}
	grants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, statement := range grants {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	for _, v := range views {
		if _, err := tx.Exec(ctx, "CREATE OR REPLACE VIEW "+v.name+" "+v.options+" AS "+v.definition); err != nil {
			return v.cannotFollow(err)
		}
	}
	return nil
}
