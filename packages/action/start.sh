#!/usr/bin/env bash
# The step of action.yml: it finds or installs keepwatch, starts keepwatch serve, and waits until it is ready. The steps
# that follow have KUBECONFIG, KEEPWATCH, and keepwatch on the PATH. The runner ends the server at the end of the job.
set -euo pipefail

fail() {
  echo "::error title=Keepwatch::$*"
  exit 1
}

folder=$(mktemp -d "$RUNNER_TEMP/keepwatch.XXXXXX")

# install downloads a release, compares its checksum, and prints the path of the program.
install() {
  local version=$1 system machine name releases
  [[ $version =~ ^v[0-9] ]] || fail "give the input version, such as v0.1.0, or path: \"$version\" is no release"
  system=$(uname -s | tr '[:upper:]' '[:lower:]')
  case $(uname -m) in
    x86_64) machine=amd64 ;;
    aarch64 | arm64) machine=arm64 ;;
    *) fail "there is no keepwatch for $(uname -m)" ;;
  esac
  name=keepwatch-$system-$machine.tar.gz
  releases=${KEEPWATCH_RELEASES:-https://github.com/keepwatch/keepwatch/releases/download}
  for file in "$name" SHA256SUMS; do
    curl --fail --silent --show-error --location --retry 3 --output "$folder/$file" "$releases/$version/$file" ||
      fail "$releases/$version/$file cannot be downloaded"
  done
  (cd "$folder" && grep " $name\$" SHA256SUMS >sum && sha256 sum >/dev/null) ||
    fail "$name of $version has another checksum"
  mkdir "$folder/bin"
  tar -xzf "$folder/$name" -C "$folder/bin" keepwatch
  rm "$folder/$name"
  echo "$folder/bin/keepwatch"
}

# sha256 compares a file of checksums; macOS has no sha256sum.
sha256() { if command -v sha256sum >/dev/null; then sha256sum --check "$1"; else shasum -a 256 --check "$1"; fi; }

if [ -n "${KEEPWATCH_PATH:-}" ]; then
  program=$(cd "$(dirname "$KEEPWATCH_PATH")" && pwd)/$(basename "$KEEPWATCH_PATH")
  [ -x "$program" ] || fail "the input path, $KEEPWATCH_PATH, is no program"
else
  program=$(install "${KEEPWATCH_VERSION:-}") || { echo "$program"; exit 1; } # the error is on its stdout
fi

read -r -d '' -a flags <<<"${KEEPWATCH_FLAGS:-}" || true # of all lines; it fails at the end of the text
kubeconfig=$folder/kubeconfig
nohup "$program" serve --listen 127.0.0.1:0 --kubeconfig-out "$kubeconfig" ${flags[@]+"${flags[@]}"} \
  >"$folder/log" 2>&1 </dev/null &
pid=$!
until [ -e "$kubeconfig" ]; do # the server writes it when it is ready
  kill -0 "$pid" 2>/dev/null || fail "keepwatch serve has ended: $(tr '\n' ' ' <"$folder/log")"
  sleep 0.05
done
cat "$folder/log"

{
  echo "KUBECONFIG=$kubeconfig"
  echo "KEEPWATCH=$program"
} >>"$GITHUB_ENV"
{
  echo "kubeconfig=$kubeconfig"
  echo "pid=$pid"
} >>"$GITHUB_OUTPUT"
dirname "$program" >>"$GITHUB_PATH"
