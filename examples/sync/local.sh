#!/usr/bin/env bash
# The history of a few objects as SQL, with everything on this machine and gone at the end: a server, its sync, and the database.
#
#   examples/sync/local.sh [sqlite|postgres]
#
# Needs bin/keepwatch (make build), kubectl, and sqlite3 or Postgres' programs in /usr/lib/postgresql.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
keepwatch=${KEEPWATCH:-$here/../../bin/keepwatch}
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$dir"' EXIT

case ${1:-sqlite} in
sqlite)
  to=sqlite:$dir/state.db
  sql() { sqlite3 -cmd '.timeout 10000' "$dir/state.db"; }
  ;;
postgres)
  # Postgres does not run as root.
  as=; if [ "$(id -u)" = 0 ]; then as="setpriv --reuid postgres --regid postgres --clear-groups"; chmod 755 "$dir"; fi
  mkdir "$dir/socket"; if [ -n "$as" ]; then chown postgres "$dir/socket"; fi
  PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -1):$PATH
  (cd / && $as initdb -D "$dir/socket/data" -U keepwatch -A trust >"$dir/initdb")
  (cd / && exec $as postgres -D "$dir/socket/data" -k "$dir/socket" -c listen_addresses=) >"$dir/postgres" 2>&1 &
  until pg_isready -q -h "$dir/socket"; do sleep 0.1; done
  to="postgres://keepwatch@/postgres?host=$dir/socket"
  sql() { psql -h "$dir/socket" -U keepwatch -d postgres -At; }
  ;;
esac

export KUBECONFIG=$dir/kubeconfig
"$keepwatch" serve --listen 127.0.0.1:0 --kubeconfig-out "$KUBECONFIG" --controllers=false 2>"$dir/serve" &
until [ -s "$KUBECONFIG" ]; do sleep 0.1; done
kubectl apply -f "$here/../widgets.yaml"
kubectl wait --for condition=Established crd/widgets.example.com
kubectl apply -f "$here/../two-widgets.yaml"
kubectl create configmap settings --from-literal password=secret

"$keepwatch" sync -f "$here/sync.yaml" --to "$to" 2>"$dir/sync" &
until grep 'synced at .*widgets' "$dir/sync"; do sleep 0.1; done

kubectl patch widget one --type merge -p '{"spec":{"size":4}}'
kubectl delete widget two
until [ "$(sql <<<"SELECT count(*) FROM resources WHERE valid_to IS NOT NULL AND resource = 'widgets.example.com'")" = 2 ]; do sleep 0.1; done
sql <"$here/history.sql"
"$keepwatch" sync status --to "$to"
