#!/usr/bin/env bash
# Runs inside the Debian of run.sh, by big.sh: is the first minute after a start as fast as later ones?
#   first_minute.sh run            after each start of vllm@big one run of `vllm bench serve`, which nothing comes before; then, where a
#                                  start has the word "steady", another one of the same size
#   first_minute.sh started NAME   seconds from systemd's "Starting" to "Started"
set -euo pipefail
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh
vllm=(/opt/vllm/*/bin/vllm)

started() {
  systemctl show "vllm@$1" -p InactiveExitTimestampMonotonic -p ActiveEnterTimestampMonotonic --value |
    paste -sd' ' | awk '{ printf "active after %.1f s\n", ($1 > $2 ? $1 - $2 : $2 - $1) / 1e6 }'
}

# bench NAME CONCURRENCY REQUESTS
bench() {
  local seed=$RANDOM
  "${vllm[0]}" bench serve --backend vllm --base-url http://127.0.0.1:8010 --model openai/gpt-oss-20b \
    --tokenizer /var/lib/vllm/big/model --dataset-name random --random-input-len 1024 --random-output-len 512 --ignore-eos \
    --num-prompts "$3" --max-concurrency "$2" --seed "$seed" --save-result --result-dir "$result" --result-filename "$1.json" \
    > "$result/$1.log" 2>&1 || { tail -20 "$result/$1.log"; return 0; }
  say "$1, seed $seed: $(python3 - "$result/$1.json" <<'PYTHON'
import json, sys
r = json.load(open(sys.argv[1]))
print(f"{r['output_throughput']:.0f} tok/s, TTFT median {r['median_ttft_ms']:.0f} ms, TPOT median {r['median_tpot_ms']:.1f} ms, "
      f"{r['completed']} requests in {r['duration']:.1f} s")
PYTHON
)"
}

# cycle NUMBER CONCURRENCY REQUESTS [steady]
cycle() {
  # The first start, with nothing cached, was that of site.yml.
  if [ "$1" != 1 ]; then systemctl restart vllm@big || { journalctl -u vllm@big --no-pager | tail -40; exit 1; }; fi
  say "start $1: $(started big); $(journalctl -u vllm@big --no-pager -o cat | grep '^Warm-up' | tail -1)"
  bench "start$1-c$2-first" "$2" "$3"
  if [ "${4:-}" = steady ]; then bench "start$1-c$2-steady" "$2" "$3"; fi
}

case $1 in
  started) started "$2" ;;
  run)
    cycle 1 64 640 steady
    cycle 2 512 1024 steady
    cycle 3 64 640
    cycle 4 512 1024
    cycle 5 64 640 steady
    cycle 6 512 1024 steady
    ;;
esac
