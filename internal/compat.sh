#!/usr/bin/env bash
# Tests what users import of the library with versions of Kubernetes' libraries: internal/compat.sh VERSION..., such as
# v0.35.10. go.mod stays as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off GOTOOLCHAIN=auto # the newest k8s.io needs a newer Go than this module
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=()
for version in "$@"; do
  echo "== k8s.io $version"
  module="$work/go.mod"
  # What is indirect, and k8s.io's other modules, are those of the version.
  sed -e '/\/\/ indirect/d' -e '/k8s.io\/\(klog\|utils\)/d' \
    -e "s#^\(\tk8s.io/[a-z-]* \)v0.*#\1$version#" go.mod >"$module"
  cp go.sum "$work/go.sum"
  go mod tidy -modfile="$module" 2>"$work/output" || { cat "$work/output"; exit 1; }
  tests=(. ./store ./reflector/... ./source/... ./informer ./informer/health ./informer/internal/... ./operator/... ./stream/... ./check)
  case $version in
  v0.33.* | v0.34.*) tag=k8s_v0.35 ;; # whose users replace no informer of client-go: it only has to compile
  v0.35.*) tag=k8s_v0.35 tests+=(./informer/clientgo) ;;
  v0.36.*) tag=k8s_v0.36 tests+=(./informer/clientgo) ;;
  *) tag=k8s_newest tests+=(./informer/clientgo) ;;
  esac
  : >"$work/output"
  go build -modfile="$module" -tags "$tag" ./informer/clientgo &&
    go test -modfile="$module" -tags "$tag" -short "${tests[@]}" >"$work/output" || failed+=("$version")
  grep -v 'no test files' "$work/output" || true
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}"
  exit 1
fi
