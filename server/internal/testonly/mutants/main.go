package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
)

func main() {
	n := flag.Int("n", 50, "the number of mutants of a package that compile; 0 is all")
	seed := flag.Uint64("seed", 0, "draws the mutants; 0 draws another seed, which is printed")
	record := flag.Bool("record", false, "append the results to test/results/packages.tsv")
	byHand := flag.Bool("planted", false, "the mistakes written by hand, in place of drawn ones")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	if err := run(ctx, *n, *seed, *byHand, *record, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

var errSurvivors = errors.New("some mutants survived")

func run(ctx context.Context, n int, seed uint64, byHand, record bool, patterns []string) error {
	scratch, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	root, module, err := moduleHere(ctx)
	if err != nil {
		return err
	}
	if byHand {
		return runPlanted(ctx, root, module, scratch)
	}
	known, err := equivalents(equivalentText)
	if err != nil {
		return err
	}
	packages, err := list(ctx, patterns)
	if err != nil {
		return err
	}
	fmt.Printf("seed %d\n", seed)
	var survivors int
	for _, p := range packages {
		mutants, err := mutantsIn(p)
		if err != nil {
			return err
		}
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(mutants), func(i, j int) {
			mutants[i], mutants[j] = mutants[j], mutants[i]
		})
		c, err := judgeAll(ctx, p, mutants, n, func(m mutant) bool { return known[m.equivalence(root)] }, scratch)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", p.ImportPath, c)
		if record {
			if err := figures.RecordPackage(root, figures.Mutants, p.ImportPath, c.noticed(), c.valid(),
				strconv.FormatUint(seed, 10)); err != nil {
				return err
			}
		}
		survivors += c[survived]
	}
	if survivors > 0 {
		return errSurvivors
	}
	return nil
}

// counts are the mutants by verdict. Equivalent ones have the verdict "".
type counts map[verdict]int

// valid returns the number of mutants that compile and are not equivalent.
func (c counts) valid() int { return c[killed] + c[late] + c[survived] }

func (c counts) noticed() int { return c[killed] + c[late] }

func (c counts) String() string {
	return fmt.Sprintf("%d of %d killed (%d %%), %d of them by the time limit; %d do not compile, %d are equivalent",
		c.noticed(), c.valid(), 100*c.noticed()/max(1, c.valid()), c[late], c[invalid], c[""])
}

// judgeAll judges mutants of a package until n of them are valid, and prints those that survive.
func judgeAll(ctx context.Context, p goPackage, mutants []mutant, n int, equivalent func(mutant) bool,
	scratch string) (counts, error) {
	t, err := begin(ctx, p.ImportPath, scratch)
	if err != nil {
		return nil, err
	}
	c := counts{}
	for _, m := range mutants {
		if n > 0 && c.valid() == n {
			break
		}
		if equivalent(m) {
			c[""]++
			continue
		}
		v, err := t.judge(ctx, m)
		if err != nil {
			return nil, err
		}
		if c[v]++; v == survived {
			fmt.Println(m)
		}
	}
	return c, nil
}

// runPlanted judges each mistake written by hand.
func runPlanted(ctx context.Context, root, module, scratch string) error {
	all, err := plantedIn(plantedText, root, module)
	if err != nil {
		return err
	}
	trials := map[string]*trial{}
	c := counts{}
	for _, p := range all {
		if trials[p.importPath] == nil {
			if trials[p.importPath], err = begin(ctx, p.importPath, scratch); err != nil {
				return err
			}
		}
		v, err := trials[p.importPath].judge(ctx, p.mutant)
		if err != nil {
			return err
		}
		c[v]++
		fmt.Printf("%s: %s: %s\n", p.importPath, p.effect, v)
	}
	fmt.Println(c)
	if c[survived]+c[invalid] > 0 {
		return errSurvivors
	}
	return nil
}

// library is the module in the root of the repository. The paths of the others begin with its path, as their folders
// do.
const library = "github.com/keepwatch/keepwatch"

// moduleHere returns the folder and the path of the library.
func moduleHere(ctx context.Context) (root, module string, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}\n{{.Path}}", library).Output()
	if err != nil {
		return "", "", fmt.Errorf("go list -m: %w", err)
	}
	root, module, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	return root, module, nil
}
