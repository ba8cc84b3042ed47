#!/usr/bin/env bash
# Builds the packages of Python, JavaScript and Java into a folder: packages/build.sh FOLDER. A language without its
# tools is named and left out. The sources are copied first, so that nothing is written beside them.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")"

sources() { # LANGUAGE
  rm -rf "$out/build/$1"
  mkdir -p "$out/build"
  cp -R "$1" "$out/build/$1"
  cp ../LICENSE "$out/build/$1/"
  cd "$out/build/$1"
}

rm -f "$out"/*.whl "$out"/*.tar.gz "$out"/*.tgz "$out"/*.jar
versions=$(sed -n -e 's/^VERSION = "\(.*\)"/\1/p' python/src/keepwatch/_program.py \
  -e "s/^export const version = '\(.*\)';/\1/p" typescript/src/program.ts \
  -e 's/^  "version": "\(.*\)",/\1/p' typescript/package.json \
  -e 's/^  public static final String VERSION = "\(.*\)";/\1/p' java/src/main/java/io/github/keepwatch/Program.java \
  -e 's/^  <version>\(.*\)<\/version>/\1/p' java/pom.xml)
if [ "$(sort -u <<<"$versions" | wc -l)" != 1 ] || [ "$(wc -l <<<"$versions")" != 5 ]; then
  echo "the packages have different versions: $(tr '\n' ' ' <<<"$versions")"
  exit 1
fi

if python3 -c 'import venv, ensurepip' 2>/dev/null; then
  (
    sources python
    python3 -m venv "$out/build/tools"
    "$out/build/tools/bin/pip" install --quiet --disable-pip-version-check build==1.6.1
    log=$out/build/python.log
    "$out/build/tools/bin/python" -m build --outdir "$out" . >"$log" 2>&1 || { cat "$log"; exit 1; }
  )
else
  echo "no python3 with venv: the Python package is NOT built"
fi

if command -v npm >/dev/null; then
  (
    sources typescript
    npm ci --silent --no-audit --no-fund --ignore-scripts
    npm pack --silent --pack-destination "$out" >/dev/null
  )
else
  echo "no npm: the JavaScript package is NOT built"
fi

if command -v mvn >/dev/null && command -v javac >/dev/null; then
  (
    sources java
    mkdir -p src/main/resources/META-INF
    mv LICENSE src/main/resources/META-INF/
    mvn -q -B package
    cp target/keepwatch-*.jar "$out/"
  )
else
  echo "no mvn and javac: the Java package is NOT built"
fi
(cd "$out" && ls -d -- keepwatch-*)
