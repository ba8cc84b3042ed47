package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	area := flag.String("area", "", "only the parts of this area, or this part")
	seed := flag.String("seed", "1", "the seed of random tests")
	list := flag.Bool("list", false, "print the parts and their last results, and run none")
	names := flag.Bool("names", false, "print the names of the parts as a JSON list, and run none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	selected, err := selectParts(*area)
	switch {
	case err != nil:
	case *names:
		err = json.NewEncoder(os.Stdout).Encode(namesOf(selected))
	default:
		err = verify(ctx, "..", selected, *seed, *list)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify:", err)
		os.Exit(1)
	}
}

// verify runs the parts that have not passed on these sources with this seed. It fails if one of them failed, after
// it ran the others.
func verify(ctx context.Context, root string, selected []part, seed string, list bool) error {
	id, err := identify(root)
	if err != nil {
		return err
	}
	failed, untested := 0, 0
	for _, p := range selected {
		r, err := loadResult(resultDir(root), p)
		if err == nil && !list && !(r.Passed && r.of(p, id, seed)) {
			fmt.Printf("\n%s: %s\n", p.id(), p.command)
			r, err = runAndSave(ctx, root, p, id, seed)
		}
		if err != nil {
			return err
		}
		report(r, p, id, seed)
		if !r.Passed {
			failed++
		}
		untested += len(r.Skipped)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", len(selected)-failed, failed, untested)
	if failed > 0 && !list {
		return fmt.Errorf("%d of %d parts failed; their logs are in bin/verify", failed, len(selected))
	}
	return nil
}

func resultDir(root string) string { return filepath.Join(root, "test", "results") }

// runAndSave runs a part, and writes its result and the table of all results.
func runAndSave(ctx context.Context, root string, p part, id identity, seed string) (result, error) {
	r, err := run(ctx, root, p, id, seed)
	if err != nil {
		return r, err
	}
	if err := r.save(resultDir(root), p); err != nil {
		return r, err
	}
	results, err := loadResults(resultDir(root))
	if err != nil {
		return r, err
	}
	return r, writeTable(filepath.Join(root, "docs", "verification.md"), results)
}

// report prints a result, and what it did not test.
func report(r result, p part, id identity, seed string) {
	switch {
	case r.Part == "":
		fmt.Printf("%-40s never run\n", p.id())
	case !r.of(p, id, seed):
		fmt.Printf("%-40s passed=%t on %s, on other sources: %s\n", p.id(), r.Passed, r.Date.Format("2006-01-02"), r.Commit)
	default:
		fmt.Printf("%-40s passed=%t in %d s on %s\n", p.id(), r.Passed, r.Seconds, r.Date.Format("2006-01-02"))
	}
	for _, test := range r.Skipped {
		fmt.Println("    not tested:", test)
	}
}
