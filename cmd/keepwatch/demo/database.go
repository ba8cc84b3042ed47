package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	clientv3 "go.etcd.io/etcd/client/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// compact makes the server's etcd forget all revisions before the newest one.
func (s *shell) compact(socket string) {
	if s.err != nil {
		return
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(s.dir, socket)}})
	if err != nil {
		s.fail("etcd: %w", err)
		return
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(s.ctx, stepTimeout)
	defer cancel()
	newest, err := client.Get(ctx, "/")
	if err == nil {
		fmt.Printf("$ etcdctl --endpoints unix://%s compact %d\n", socket, newest.Header.Revision)
		_, err = client.Compact(ctx, newest.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		s.fail("compact: %w", err)
	}
}

// query prints the rows of a query.
func (s *shell) query(file, query string) {
	if s.err != nil {
		return
	}
	fmt.Printf("$ sqlite3 -header %s \"%s\"\n", file, query)
	if err := s.printRows(file, query); err != nil {
		s.fail("%s: %w", query, err)
	}
}

func (s *shell) printRows(file, query string) error {
	database, err := sql.Open("sqlite", "file:"+filepath.Join(s.dir, file)+"?mode=ro")
	if err != nil {
		return err
	}
	defer database.Close()
	rows, err := database.QueryContext(s.ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	values, targets := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		targets[i] = &values[i]
		fmt.Fprintf(table, "%s\t", names[i])
	}
	fmt.Fprintln(table)
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		for _, value := range values {
			fmt.Fprintf(table, "%s\t", value.String)
		}
		fmt.Fprintln(table)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return table.Flush()
}
