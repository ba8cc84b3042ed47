package conform_test

import (
	"context"
	"fmt"
	"log"

	"github.com/keepwatch/keepwatch/server/judge/conform"
)

// A server is judged in one call.
func ExampleRun() {
	report, err := conform.Run(context.Background(), api, conform.Options{Watchers: 8, Writes: 50})
	if err != nil {
		log.Fatal(err)
	}
	for _, result := range report.Broken() {
		fmt.Println(result.Rule.ID, result.Facts)
	}
	fmt.Println(len(report.Broken()), "rules are broken")
}
