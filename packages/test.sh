#!/usr/bin/env bash
# Tests the packages that packages/build.sh has put into a folder, with a program: packages/test.sh FOLDER PROGRAM. Each
# is installed into a new project, with the official client for Kubernetes, as a user does. SEED repeats a test that
# draws moments. The Java package goes into the user's Maven repository, as by mvn install.
set -euo pipefail
out=$(cd "$1" && pwd)
KEEPWATCH=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
export KEEPWATCH
cd "$(dirname "$0")"

project() { # LANGUAGE
  echo "== $1"
  rm -rf "$out/test/$1"
  mkdir -p "$out/test"
  cp -R "$1/tests" "$out/test/$1"
}

if ls "$out"/*.whl >/dev/null 2>&1; then
  project python
  python3 -m venv "$out/test/python/venv"
  python=$out/test/python/venv/bin/python
  "$python" -m pip install --quiet --disable-pip-version-check \
    --constraint ../test/matrix/clients/python/requirements.txt kubernetes pytest "$out"/*.whl
  (cd "$out/test/python" && "$python" -B -m pytest -q -p no:cacheprovider .)
  echo "== action"
  (cd action && "$python" -B -m pytest -q -p no:cacheprovider .)
fi

if ls "$out"/*.tgz >/dev/null 2>&1; then
  project typescript
  (
    cd "$out/test/typescript"
    npm install --silent --no-audit --no-fund --no-package-lock --ignore-scripts
    npm install --silent --no-audit --no-fund --no-package-lock --ignore-scripts --no-save "$out"/*.tgz
    npm test --silent
  )
fi

if ls "$out"/*.jar >/dev/null 2>&1; then
  project java
  mvn -q -B -f "$out/build/java" install
  mvn -q -B -f "$out/test/java" test
fi
