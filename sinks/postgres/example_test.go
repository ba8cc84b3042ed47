package postgres_test

import (
	"context"
	"fmt"

	"github.com/keepwatch/keepwatch/sinks/postgres"
)

// This example prints how far the tables of a schema have come.
func ExampleSink_Status() {
	s := postgres.New("postgres://reader@db.example.com/kubernetes?search_path=cluster_a", postgres.Options{})
	all, err := s.Status(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, stream := range all {
		fmt.Println(stream.ID.Resource, stream.Progress.Cursor, stream.Count)
	}
}
