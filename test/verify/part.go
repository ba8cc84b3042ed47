package main

import (
	"fmt"
	"slices"
	"strings"
)

// part is one command of make verify.
type part struct {
	area, name string
	command    string // for sh, in the repository's root; $SEED is the run's seed
}

// id is the name of the part's files.
func (p part) id() string { return p.area + "-" + p.name }

// parts are everything that is verified beyond make test and .ci/run. The short parts of an area come first.
var parts = []part{
	{"library", "tests", "$GOTEST -timeout 1h work"},
	{"library", "race", "$GOTEST -race -timeout 3h work"},
	{"library", "versions", "make compat"},
	{"library", "powerloss", "cd test && $GOTEST -timeout 1h ./powerloss -args -powerloss.runs 100 -powerloss.seed $SEED"},
	{"library", "simulation", "make sim N=200000 SEED=$SEED"},
	{"library", "informers",
		"cd test && $GOTEST -timeout 1h ./real/managed ./reconcile ./embedded/clients ./examples/..."},

	{"sinks", "tests", "make test-sinks SEED=$SEED"},
	{"sinks", "cluster", "cd test && $GOTEST -timeout 2h ./real/sync ./ndjson"},
	{"sinks", "past", "cd test && $GOTEST -timeout 1h ./real/past -args -past.seed $SEED"},
	{"sinks", "past-hours", "$GOTEST -timeout 1h ./sinks/sqlite -run '^TestHours$' -args -sinks.hours 12 -sinks.seed $SEED"},
	{"sinks", "past-restore",
		"$GOTEST -timeout 2h ./cmd/keepwatch -run '^TestHistoryRestore$' -args -restore.objects 20000 -restore.seed $SEED"},
	{"sinks", "past-authority",
		"$GOTEST -timeout 1h ./cmd/keepwatch -run '^TestPastAuthority$' -args -past.requests 20000 -past.seed $SEED"},
	{"sinks", "past-beside",
		"$GOTEST -timeout 5h ./cmd/keepwatch -run '^TestHistoryBesideSync$' -args -beside.for 3h -beside.seed $SEED"},
	{"sinks", "past-speed", "make bench-history"},
	{"sinks", "compared", "make compared"},
	{"sinks", "speed", "make bench-sync"},

	{"proxy", "tests", "cd test && $GOTEST -timeout 2h ./real/proxy ./real/passthrough"},
	{"proxy", "latest", "cd test && $GOTEST -timeout 2h ./real/proxy -args -peer.latest"},
	{"proxy", "personal", "cd test && $GOTEST -timeout 4h ./real/proxy -run '^TestPersonalViews(BesideAWebhook)?$' -args -proxy.personal-steps 10000 -proxy.personal-users 20 -proxy.personal-seed $SEED"},
	{"proxy", "personal-programs", "cd test && $GOTEST -timeout 4h ./real/proxy -run '^TestPersonalPrograms$' -args -proxy.personal-steps 10000 -proxy.personal-seed $SEED"},
	{"proxy", "lost-history", "make lost-history SEED=$SEED"},
	{"proxy", "speed", "make bench-proxy"},
	{"proxy", "neighbours", "make bench-neighbours"},
	{"proxy", "personal-cost", "make bench-personal"},
	{"proxy", "mutants", "go run ./server/internal/testonly/mutants -planted"},

	{"serve", "embedded", "cd test && $GOTEST -timeout 2h ./embedded/... ./envtest ./rawwatch ./follow"},
	{"serve", "real",
		"cd test && $GOTEST -p 1 -timeout 2h ./real/smoke ./real/conformance ./real/differential ./real/foreign ./real/kine ./real/kubectl ./real/losses ./real/outage ./real/storm"},
	{"serve", "rules", "make rights SEED=$SEED"},
	{"serve", "simulation", "cd test && $GOTEST ./real/stages ./real/envtest"},
	{"serve", "storms", "make storms SEED=$SEED"},
	{"serve", "speed", "make bench-real"},

	{"testserver", "suites", "make envtest-suites"},
	{"testserver", "packages", "make test-packages SEED=$SEED"},
	{"testserver", "speed", "make bench-testserver"},

	{"kubernetes", "tests", "make test-kubernetes SEED=$SEED"},
	{"kubernetes", "story", "make kubernetes-story"},
	{"kubernetes", "suites", "make kubernetes-suites"},
	{"kubernetes", "speed", "make bench-kubernetes"},

	{"judges", "operators", "cd test && $GOTEST -timeout 2h ./judged"},
	{"judges", "operators-seeds-controller-runtime", correctOperator("controller-runtime")},
	{"judges", "operators-seeds-operator", correctOperator("operator")},
	{"judges", "operators-seeds-javascript", correctOperator("javascript")},
	{"judges", "operators-seeds-java", correctOperator("java")},
	{"judges", "operators-seeds-josdk", correctOperator("josdk")},
	{"judges", "operators-seeds-kopf", correctOperator("kopf")},
	{"judges", "operators-seeds-rust", correctOperator("rust")},
	{"judges", "operators-go", "$GOTEST -timeout 1h ./server/judge/operators"},
	{"judges", "operators-seeds",
		"$GOTEST -parallel 8 -timeout 4h ./server/judge/operators -run '^TestTwinsOverSeeds$' -args -operators.seeds 100"},
	{"judges", "operators-kubernetes", "cd test && $GOTEST -timeout 2h ./real/judge"},
	{"judges", "operators-speed", "make bench-judge"},
	{"judges", "servers", "make servers"},
	{"judges", "published-bugs", "make published"},
	{"judges", "matrix", "make matrix UPSTREAM=kube-apiserver SEED=$SEED"},
	{"judges", "matrix-serve", "make matrix UPSTREAM=serve SEED=$SEED"},
	{"judges", "matrix-proxy", "make matrix UPSTREAM=proxy SEED=$SEED"},
	{"judges", "matrix-keepwatch-apiserver", "make matrix UPSTREAM=keepwatch-apiserver SEED=$SEED"},

	{"deploy", "charts", "cd test && $GOTEST ./deploy"},
	{"deploy", "release", twoReleases},
}

// namesOf returns the ids of parts.
func namesOf(parts []part) (all []string) {
	for _, p := range parts {
		all = append(all, p.id())
	}
	return all
}

// correctOperator judges an operator of test/judged without a bug.
func correctOperator(name string) string {
	return fmt.Sprintf("cd test && $GOTEST -timeout 5h ./judged -run '^TestCorrectTwins$/^%s$' -args -judged.seeds 100", name)
}

// twoReleases makes a release in two clones, the second time with other settings of the machine and an empty build
// cache: what the cache has of the first one would be the same in any case.
const twoReleases = `rm -rf bin/verify/release && mkdir -p bin/verify/release && cd bin/verify/release && git clone -q ../../.. a && git clone -q a elsewhere &&
(cd a && umask 022 && TZ=UTC make release VERSION=v0.1.0-rc.1) &&
(cd elsewhere && umask 077 && TZ=Pacific/Kiritimati LC_ALL=tr_TR.UTF-8 GOCACHE=$PWD/bin/cache make release VERSION=v0.1.0-rc.1) &&
cmp a/bin/release/v0.1.0-rc.1/SHA256SUMS elsewhere/bin/release/v0.1.0-rc.1/SHA256SUMS && rm -rf elsewhere`

// selectParts returns the parts of an area, or the one with this id, or all of them if area is "".
func selectParts(area string) ([]part, error) {
	if area == "" {
		return parts, nil
	}
	var selected []part
	var areas []string
	for _, p := range parts {
		if p.area == area || p.id() == area {
			selected = append(selected, p)
		}
		areas = append(areas, p.area)
	}
	if selected == nil {
		return nil, fmt.Errorf("there is no area or part %q: use one of %s, or a part as the table of results names it", area, strings.Join(slices.Compact(areas), ", "))
	}
	return selected, nil
}
