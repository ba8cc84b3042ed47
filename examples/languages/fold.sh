#!/bin/bash
# Folds the lines that keepwatch watch appends to LOG:  bash fold.sh LOG STATE
#
# STATE has the position in LOG, and the last line of each object. Both are replaced together,
# so the program may be killed at any time. It needs no jq: the members before the object are always in this order.
export LC_ALL=C # a character a byte
log=$1 state=$2 position=0 saved=0 line=
declare -A objects # lines by resource and UID
event='^\{"type":"(ADDED|MODIFIED|DELETED)","revision":"[0-9]+","id":"([^/]+)/[^"]+","resource":"([^"]+)","object":.*\}\}$'

fold() {
  [[ $1 == '{"type":"SYNCED"'* ]] && echo "${#objects[@]} objects: $1"
  [[ $1 =~ $event ]] || return # also a line that keepwatch was killed in; the event is repeated
  local key="${BASH_REMATCH[3]} ${BASH_REMATCH[2]}"
  unset "objects[$key]"
  [[ ${BASH_REMATCH[1]} == DELETED ]] || objects[$key]=$1
}

save() {
  printf '%s\n' "$position" "${objects[@]}" >"$state.new" && mv "$state.new" "$state" && saved=$position
}

if [[ -e $state ]]; then
  { read -r position; while IFS= read -r line; do fold "$line"; done; } <"$state"
  saved=$position line=
fi
exec 3<"$log"
head -c "$position" <&3 >/dev/null
while true; do
  if IFS= read -r -u 3 part; then
    line+=$part
    fold "$line"
    position=$((position + ${#line} + 1)) line=
  else
    line+=$part # the beginning of a line
    ((position == saved)) || save
    sleep 0.2
  fi
done
