#!/usr/bin/env bash
# Runs inside the Debian of run.sh: the presets of gpt-oss-20b as site.yml sets them, their starts and loads.
#   presets.sh            site.yml, then the lanes in the background, and their logs
#   presets.sh follow S   wait S seconds and show the logs
#   presets.sh tp2        after the lanes: one instance over two chips, its engine by fork and by spawn
# Lane s runs site.yml; lane b begins when the latency instance is active, lane a when site.yml has ended. The results of
# 2026-11-25 compared throughput with coarse sizes; it has them since, and is compared with the sizes of before.
set -euo pipefail
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh
# The environment comes with site.yml.
python() { set -- /opt/vllm/*/bin/python; echo "$1"; }
chips=$(nvidia-smi -L | wc -l)
one=; [ "$chips" -gt 1 ] || one=1
last=$(getconf _NPROCESSORS_ONLN)
lanes() { [ -n "$(systemctl list-units --no-legend --plain --state=active,activating 'lane-*')" ]; }
# await COMMAND...: wait until it succeeds, as long as lane s has not failed
await() { until "$@"; do [ ! -e "$result/site-failed" ] || exit 1; sleep 1; done; }
started() {
  systemctl show "vllm@$1" -p InactiveExitTimestampMonotonic -p ActiveEnterTimestampMonotonic --value | paste -sd' ' |
    awk '{ printf "active after %.1f s", ($1 > $2 ? $1 - $2 : $2 - $1) / 1e6 }'
}
warm() { journalctl -u "vllm@$1" --no-pager -o cat | grep '^Warm-up' | tail -1 || true; }
# load UNIT PORT NAME AT_ONCE REQUESTS
load() {
  local since seed=$RANDOM; since=$(date +%s)
  say "$3, seed $seed: $("$(python)" /carried/load.py "$2" "$4" "$5" "$seed" "$result/presets-$3.json" 2>&1 | tail -3)"
  echo "  kernels compiled: $(find "/var/cache/vllm/$1" -name '*.cubin' -newermt "@$since" | wc -l)"
}
# pair UNIT PORT NAME AT_ONCE REQUESTS: the first load after a start, and the same again
pair() { load "$1" "$2" "$3-first" "$4" "$5"; load "$1" "$2" "$3-steady" "$4" "$5"; }
again() { systemctl restart "vllm@$1" || { journalctl -u "vllm@$1" --no-pager -o cat | tail -25; return 1; }; say "START $1 $2: $(started "$1"); $(warm "$1")"; }
# preset NAME: site.yml changes the instance tuned
preset() {
  local log=$result/presets-$1-$RANDOM.log
  if (cd /carried/site && playbook "$1$one.yml" site.yml > "$log" 2>&1); then
    cp /etc/vllm/tuned.yaml "$result/$1.yaml"; say "SITE $1: $(started tuned); $(warm tuned)"
  else say "SITE $1 FAILED"; tail -30 "$log"; journalctl -u vllm@tuned --no-pager -o cat | tail -15; return 1; fi
}
lane_s() {
  say "site.yml"
  cd /carried/site
  if ! playbook "presets-first$one.yml" site.yml > "$result/presets-first.log" 2>&1; then tail -60 "$result/presets-first.log"; touch "$result/site-failed"; fail "site.yml"; fi
  tail -3 "$result/presets-first.log"; cp /etc/vllm/*.yaml "$result/"
  # FlashInfer's sampler in the environment, as a step of the installation could put it there: is it taken by later starts?
  local so package
  so=$(find /var/cache/vllm/big/.cache/flashinfer -name sampling.so | head -1 || true)
  echo "  modules compiled by the first start: $(find /var/cache/vllm/*/.cache/flashinfer -name '*.so' | tr '\n' ' ')"
  package=$(dirname "$("$(python)" -c 'import importlib.util as u; print(u.find_spec("flashinfer").origin)')")
  if [ -n "$so" ]; then mkdir -p "$package/data/aot/sampling"; cp "$so" "$package/data/aot/sampling/"; chmod -R a+rX "$package/data/aot"; ls -l "$package/data/aot/sampling"
  else say "no sampling.so: the sampler was not compiled"; fi
  touch "$result/site-done"; say "site.yml has ended"
}
recompiled() { echo "  modules in $1's own cache: $(find "/var/cache/vllm/$1/.cache/flashinfer" -name '*.so' 2>/dev/null | tr '\n' ' ')"; }
lane_a() {
  await [ -e "$result/site-done" ]
  say "START big by site.yml, nothing cached: $(started big); $(warm big)"
  pair big 8010 big-start1-c512 512 1024
  # Its own cache of FlashInfer's away: only the file in the environment is left.
  mv /var/cache/vllm/big/.cache/flashinfer /var/cache/vllm/big/.cache/flashinfer-old || true
  again big "2, sampler in the environment only"; recompiled big; pair big 8010 big-start2-c512 512 1024
  again big 3; pair big 8010 big-start3-c64 64 640
  SAMPLING='{"temperature": 1, "top_p": 0.9, "top_k": 40}' load big 8010 big-sampled 64 384; recompiled big
  again big 4; pair big 8010 big-start4-c512 512 1024
  again big 5; pair big 8010 big-start5-c64 64 640
  again big 6; pair big 8010 big-start6-c512 512 1024
  again big 7; pair big 8010 big-start7-c64 64 640
}
lane_b() {
  if [ -n "$one" ]; then while systemctl is-active --quiet lane-s lane-a; do sleep 1; done; systemctl stop vllm@big; preset presets-latency
  else await systemctl is-active --quiet vllm@tuned; say "START tuned, latency, by site.yml, nothing cached: $(started tuned); $(warm tuned)"; fi
  pair tuned 8020 latency-1-c8 8 80; load tuned 8020 latency-1-c1 1 4
  again tuned "latency 2"; load tuned 8020 latency-2-c8 8 80
  again tuned "latency 3"; load tuned 8020 latency-3-c8 8 80
  await [ -e "$result/site-done" ]
  again tuned "latency 4"; recompiled tuned
  for n in 1 2; do
    preset presets-throughput && { recompiled tuned; pair tuned 8020 "throughput-$n-c512" 512 1024; load tuned 8020 "throughput-$n-c64" 64 512; }
    preset presets-fine && { pair tuned 8020 "fine-$n-c512" 512 1024; load tuned 8020 "fine-$n-c64" 64 512; }
  done
}
lane_c() {
  for kind in fork spawn; do
    if (cd /carried/site && playbook "presets-tp2-$kind.yml" site.yml > "$result/presets-tp2-$kind.log" 2>&1); then
      say "SITE tp2 $kind: $(started both); $(warm both)"; again both "$kind warm"; pair both 8030 "tp2-$kind-c64" 64 512
    else say "tp2 $kind FAILED"; tail -30 "$result/presets-tp2-$kind.log"; journalctl -u vllm@both --no-pager -o cat | tail -25; fi
  done
}
background() {
  systemd-run --quiet --unit="lane-$1" ${2:+-p CPUAffinity="$2"} -E HOME=/root -E LANG=C.UTF-8 bash -c "exec bash /carried/presets.sh lane_$1 >> $result/lane-$1.log 2>&1"
}
follow() {
  local end=$((SECONDS + $1)); while lanes && [ "$SECONDS" -lt "$end" ]; do sleep 1; done
  for each in "$result"/lane-*.log; do echo "== ${each##*/}"; cat "$each"; done
  if lanes; then say "still running"; else say "all lanes have ended"; fi
}
case ${1:-} in
  lane_*) "$1" ;;
  follow) follow "$2" ;;
  tp2) lanes && fail "lanes still run"; systemctl stop vllm@big vllm@tuned || true; background c ""; follow "${2:-500}" ;;
  *)
    [ -x /usr/local/bin/ansible-playbook ] || install_ansible
    python3.13 /carried/shape.py /carried/weights /carried/site/weights
    python3.13 /carried/site/presets.py
    half=$((last / 2)) a="" b=""
    if [ -z "$one" ]; then
      a="0-$((half - 1))" b="$half-$((last - 1))"
      for each in "big $a" "tuned $b"; do
        mkdir -p "/etc/systemd/system/vllm@${each% *}.service.d"
        printf '[Service]\nCPUAffinity=%s\n' "${each#* }" > "/etc/systemd/system/vllm@${each% *}.service.d/half.conf"
      done
    fi
    background s ""; background a "$a"; background b "$b"
    follow "$((${LEFT:-400} - SECONDS))"
    ;;
esac
