#!/usr/bin/env bash
# Runs the tests of packages N times with the race detector, on 1 and on 4 processors in turn, beside two busy loops a
# core. It prints the output of each run that failed, and how many passed.
#
#   internal/stress.sh N PACKAGE...
#
# With RECORD in the environment it appends the results to test/results/packages.tsv, whose table make figures writes.
set -euo pipefail
n=$1
shift
commit=$(git rev-parse --short=12 HEAD)$(git diff --quiet HEAD -- . ':(exclude)test/results' || echo -dirty)
work=$(mktemp -d)
loops=()
# The results are stored at the end, also of an interrupted run: a test compares them with their table.
trap 'kill "${loops[@]}" 2>/dev/null || true; cat "$work/results" >>test/results/packages.tsv; rm -rf "$work"' EXIT
: >"$work/results"

go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' "$@" >"$work/packages"
packages=()
while read -r package dir; do
  go test -race -c -o "$work/${package//\//_}" "$package"
  packages+=("$package $dir")
done <"$work/packages"

for _ in $(seq $((2 * $(nproc)))); do
  (while :; do :; done) &
  loops+=($!)
done
failed=0
for package in "${packages[@]}"; do
  read -r package dir <<<"$package"
  passed=0
  for i in $(seq "$n"); do
    if (cd "$dir" && GOMAXPROCS=$((i % 2 ? 1 : 4)) "$work/${package//\//_}" -test.short -test.timeout 20m >"$work/output" 2>&1); then
      passed=$((passed + 1))
    else
      cat "$work/output"
    fi
  done
  echo "$package: $passed of $n passed"
  [ -z "${RECORD:-}" ] || printf 'stress\t%s\t%s\t%s\t%d\t%d\t\n' "$package" "$(date -u +%F)" "$commit" "$passed" "$n" \
    >>"$work/results"
  [ "$passed" = "$n" ] || failed=1
done
exit $failed
