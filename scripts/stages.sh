# shellcheck shell=bash
# Sourced: stage NAME COMMAND... runs a stage of a longer script and keeps its seconds; stages_done prints them.
# The first stage that fails ends the script, with the seconds so far.

_stages=()

stage() {
  local name=$1 start=$SECONDS code=0
  shift
  printf '\n== %s\n' "$name"
  "$@" || code=$?
  _stages+=("$(printf '%5d s  %s' $((SECONDS - start)) "$name")")
  if ((code)); then
    _stages+=("         stopped here: $name ended with $code")
    stages_done
    exit "$code"
  fi
}

stages_done() {
  printf '\n%s\n' "seconds of each stage of ${0##*/}:"
  printf '%s\n' "${_stages[@]}"
  printf '%5d s  in all\n' "$SECONDS"
}
