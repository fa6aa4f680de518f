# shellcheck shell=bash disable=SC2154  # setup.sh sets result
# Sourced after setup.sh by one.sh, presets.sh and group.sh: starts of units, loads on them, and the sweep.
# The environment comes with site.yml.
python() { set -- /opt/vllm/*/bin/python; echo "$1"; }
left() { echo $(($(cat "$result/end") - $(date +%s))); }
# Reads two times of systemd, in microseconds.
seconds_between() { paste -sd' ' | awk '{ printf "active after %.1f s", ($1 > $2 ? $1 - $2 : $2 - $1) / 1e6 }'; }
times() { echo "systemctl show vllm@$1 -p InactiveExitTimestampMonotonic -p ActiveEnterTimestampMonotonic --value"; }
# started UNIT [COMMAND]: COMMAND runs the question on another host
started() { ${2:-sh -c} "$(times "$1")" | seconds_between; }
warm() { journalctl -u "vllm@$1" --no-pager -o cat | grep '^Warm-up' | tail -1 || true; }
# load UNIT PORT NAME AT_ONCE REQUESTS: one process alone reads some 12,000 tokens a second
load() {
  local since seed=$RANDOM clients=1; since=$(date +%s)
  [ "$4" -le 64 ] || clients=4
  say "$3, seed $seed: $(CLIENTS=$clients "$(python)" /carried/load.py "$2" "$4" "$5" "$seed" "$result/load-$3.json" 2>&1 | tail -3)"
  echo "  kernels compiled: $(find "/var/cache/vllm/$1" -name '*.cubin' -newermt "@$since" | wc -l)"
}
again() {
  systemctl restart "vllm@$1" || { journalctl -u "vllm@$1" --no-pager -o cat | grep -v Route | tail -25; return 1; }
  say "START $1 $2: $(started "$1"); $(warm "$1")"
}
# with_cache CACHE COMMAND...: with the variables of the instance big, and a copy of its caches in CACHE
with_cache() {
  local cache=$1
  install -d -o vllm -g vllm "$cache"
  # The instance before has compiled most of the kernels already, and shares the chip.
  systemctl stop vllm@big
  # After configure there is no cache.
  [ ! -d /var/cache/vllm/big ] || cp -a /var/cache/vllm/big/. "$cache/"
  chown -R vllm: "$cache"
  (
    set -a
    # shellcheck disable=SC1090  # plain assignments
    . <(grep -E '^[A-Z_]+=' "$result/big.env" | grep -vE '^(CUDA_VISIBLE_DEVICES|HOME)=' | sed "s#/var/cache/vllm/big#$cache#g")
    HOME=$cache
    cd /tmp || exit
    exec "${@:2}"
  )
}
# sweep CHIP PORT [SECONDS]: with caches of its own for each chip, as the user of the units
sweep() {
  install -d -o vllm -g vllm "$result/sweep"
  cp -n /carried/site/measured/*.json "$result/sweep/" 2>/dev/null || true
  with_cache "/var/cache/vllm/sweep-$1" setpriv --reuid=vllm --regid=vllm --init-groups "$(python)" /carried/sweep.py \
    /carried/site/sweep.yml "$result/big.yaml" "$1" "$2" "$result/sweep" "${3:-$(left)}"
}
# follow_lane SECONDS: wait for the unit `lane`, and show its log
follow_lane() {
  local end=$((SECONDS + $1)); while systemctl is-active --quiet lane && [ "$SECONDS" -lt "$end" ]; do sleep 1; done
  cat "$result/lane.log"
  if systemctl is-active --quiet lane; then say "still running"; else say "the lane has ended"; fi
}
# run_steps STEP...: a step is one of the functions, with its arguments after colons; the variable STEPS has others
run_steps() {
  local step words
  # shellcheck disable=SC2086  # words
  [ -z "${STEPS:-}" ] || set -- $STEPS
  for step in "$@"; do
    IFS=: read -ra words <<< "$step"
    "${words[@]}"
  done
}
# start_lane SCRIPT: run its lane as that unit
start_lane() { systemd-run --quiet --unit=lane -E HOME=/root -E "STEPS=${STEPS:-}" -E LANG=C.UTF-8 bash -c "exec bash /carried/$1 lane > $result/lane.log 2>&1"; }
