package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// firstSchema returns the first schema of a search_path, as Postgres reads it: without quotation marks, a name is in
// lower case. It returns "" for the user's own schema, which is not created.
func firstSchema(searchPath string) string {
	name := strings.TrimSpace(searchPath)
	if quoted, ok := strings.CutPrefix(name, `"`); ok {
		name = ""
		for more := true; more; { // two quotation marks are one in the name
			var part string
			part, quoted, _ = strings.Cut(quoted, `"`)
			name += part
			if more = strings.HasPrefix(quoted, `"`); more {
				name, quoted = name+`"`, quoted[1:]
			}
		}
	} else {
		name, _, _ = strings.Cut(name, ",")
		name = lower(strings.TrimSpace(name))
	}
	if name == "$user" {
		return ""
	}
	return name
}

// lower changes ASCII letters only, as Postgres does with names in UTF-8.
func lower(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

// enterSchema makes the first schema of the search path that the address names.
func (s *Sink) enterSchema(ctx context.Context) error {
	if s.schema == "" {
		return nil
	}
	var exists bool
	if err := s.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`,
		s.schema).Scan(&exists); err != nil || exists {
		return err
	}
	_, err := s.conn.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS `+pgx.Identifier{s.schema}.Sanitize())
	return err
}

// checkSchema returns an error if the tables are in another schema than the first one of the search path: Postgres
// passes over a schema that does not exist, and one that the user may not use.
func (s *Sink) checkSchema(ctx context.Context) error {
	if s.schema == "" {
		return nil
	}
	var used string
	var first bool
	err := s.conn.QueryRow(ctx, `SELECT coalesce(current_schema(), ''), coalesce(current_schema() = $1::name, true)`,
		s.schema).Scan(&used, &first)
	if err != nil || first {
		return err
	}
	return unusable{fmt.Errorf("the search_path leads to schema %s: its first one, %s, does not exist, or the user may not "+
		"use it: GRANT USAGE ON SCHEMA", used, s.schema)}
}
