#!/usr/bin/env bash
# Runs inside the Debian of run.sh, by big.sh: is the first minute after a start as fast as the next one?
#   first_minute.sh run            after each start of vllm@big the same load twice; nothing comes before the first
#   first_minute.sh tune           variants.sh on vllm@tuned
#   first_minute.sh started NAME   seconds from systemd's "Starting" to "Started"
set -euo pipefail
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh
python=(/opt/vllm/*/bin/python)

started() {
  systemctl show "vllm@$1" -p InactiveExitTimestampMonotonic -p ActiveEnterTimestampMonotonic --value |
    paste -sd' ' | awk '{ printf "active after %.1f s\n", ($1 > $2 ? $1 - $2 : $2 - $1) / 1e6 }'
}

# restart NAME
restart() { systemctl restart "vllm@$1" || { journalctl -u "vllm@$1" --no-pager | tail -40; exit 1; }; }

warm_up() { journalctl -u "vllm@$1" --no-pager -o cat | grep '^Warm-up' | tail -1 || true; }

# bench NAME CONCURRENCY REQUESTS: the load, then what was compiled meanwhile
bench() {
  local since seed=$RANDOM
  since=$(date +%s)
  say "$1, seed $seed: $("${python[0]}" /carried/load.py 8010 "$2" "$3" "$seed" "$result/$1.json" 2>&1 | tail -3)"
  # vLLM reports a kernel that comes from the cache on disk too; one that is compiled leaves a new file.
  echo "  kernels reported: $(journalctl -u vllm@big --since "@$since" --no-pager -o cat |
    sed -n 's/.*compilation during inference: \([^ ]*\).*/\1/p' | sort | uniq -c | sort -rn | awk '{ printf "%s %s, ", $1, $2 }')"
  echo "  kernels compiled: $(find /var/cache/vllm/big -name '*.cubin' -newermt "@$since" | wc -l)"
}

# cycle NUMBER CONCURRENCY REQUESTS
cycle() {
  restart big
  say "start $1: $(started big); $(warm_up big)"
  bench "start$1-c$2-first" "$2" "$3"
  bench "start$1-c$2-steady" "$2" "$3"
}

case $1 in
  started) started "$2" ;;
  run)
    # The first start, with nothing cached, was that of site.yml. What it serves is what an instance leaves in its caches.
    say "start 1: $(started big); $(warm_up big)"
    bench start1-c512-first 512 1024
    bench start1-c64 64 640
    for number in 2 4 6; do
      cycle "$number" 64 640
      cycle "$((number + 1))" 512 1024
    done
    ;;
  tune)
    if [ "$(nvidia-smi -L | wc -l)" = 1 ]; then
      while systemctl is-active --quiet series; do sleep 1; done
      playbook hosts-tune.yml site.yml > "$result/tuned-1.log" 2>&1 || { tail -40 "$result/tuned-1.log"; fail "site.yml"; }
    fi
    exec bash /carried/variants.sh
    ;;
esac
