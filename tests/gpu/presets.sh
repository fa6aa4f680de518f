#!/usr/bin/env bash
# Runs inside the Debian of run.sh on a machine with two chips: starts of gpt-oss-20b's presets as site.yml sets them, then
# many configurations (sweep.py), as far as the time goes.
#   presets.sh            the lanes in the background, and their logs
#   presets.sh follow S   wait S seconds and show the logs
# Lane s serves the preset latency over both chips, its processes made by fork and by spawn, while lane i has the role
# compile FlashInfer's sampler; then it starts throughput on chip 0 and latency on chip 1, which lanes a and b go on with.
# The file /carried/total has the seconds for all of it.
set -euo pipefail
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh
# shellcheck source=tests/gpu/measure.sh
. /carried/measure.sh
last=$(getconf _NPROCESSORS_ONLN)
half=$((last / 2))
lanes() { [ -n "$(systemctl list-units --no-legend --plain --state=active,activating 'lane-*')" ]; }
# await SECONDS COMMAND...: wait so long at most until it succeeds
await() { local end=$((SECONDS + $1)); until "${@:2}" || [ "$SECONDS" -gt "$end" ]; do sleep 0.5; done; }
# method UNIT fork|spawn
method() { sed -i "s/^VLLM_WORKER_MULTIPROC_METHOD=.*/VLLM_WORKER_MULTIPROC_METHOD=\"$2\"/" "/etc/vllm/$1.env"; grep METHOD "/etc/vllm/$1.env"; }
timed() { while IFS= read -r line; do printf '%(%T)T %s\n' -1 "$line"; done; }
# site NAME [ARGUMENT...]
site() {
  say "site.yml, $1"
  if ! (cd /carried/site && playbook "presets-$1.yml" site.yml "${@:2}" 2>&1 | timed > "$result/site-$1.log"); then
    tail -60 "$result/site-$1.log"; say "FAILED: site.yml, $1"
  fi
  tail -3 "$result/site-$1.log"
  cp /etc/vllm/*.yaml /etc/vllm/*.env "$result/"
  chmod a+r "$result"/*.yaml
}
# What a start imports, and how long it takes; as the user of the unit.
imports() {
  local began; began=$(date +%s.%N)
  (cd /tmp && setpriv --reuid=vllm --regid=vllm --clear-groups env HOME=/tmp "$(python)" -X importtime -c \
    'import vllm.entrypoints.cli.main, vllm.entrypoints.openai.api_server, vllm.v1.engine.core, vllm.v1.worker.gpu_worker' \
    > /dev/null 2> "$result/importtime.txt") || tail -3 "$result/importtime.txt"
  say "imports: $(echo "$(date +%s.%N) $began" | awk '{ print $1 - $2 }') s"
  # The packages with the most microseconds of their own.
  awk -F'|' '{ gsub(/ /, "", $3); split($3, part, "."); own[part[1]] += substr($1, 13) }
    END { for (name in own) printf "  %8.2f s %s\n", own[name] / 1e6, name }' "$result/importtime.txt" | sort -rn | head -12
  gzip -f "$result/importtime.txt"
}
# An engine over both chips: do the ways to make its processes differ in start and answers?
pair() {
  local began
  say "START both, fork, by site.yml, nothing cached: $(started both); $(warm both)"
  "$(python)" /carried/answers.py 8030 "$result/answers-fork-1.json"
  load both 8030 tp2-fork-c8 8 64
  load both 8030 tp2-fork-c1 1 4
  again both "fork, kept caches"
  "$(python)" /carried/answers.py 8030 "$result/answers-fork-2.json" "$result/answers-fork-1.json"
  began=$SECONDS
  pkill -9 -o -f 'VLLM::Worker' || say "no worker found"
  while [ "$(systemctl is-active vllm@both)" = active ] && [ $((SECONDS - began)) -lt 60 ]; do sleep 0.2; done
  say "a worker was killed; the unit was not active after $((SECONDS - began)) s"
  while [ "$(systemctl is-active vllm@both)" != active ] && [ $((SECONDS - began)) -lt 150 ]; do sleep 0.2; done
  say "START both, fork, after that: $((SECONDS - began)) s from the kill; $(started both)"
  method both spawn
  again both "spawn, kept caches" || return 0
  "$(python)" /carried/answers.py 8030 "$result/answers-spawn.json" "$result/answers-fork-1.json"
  load both 8030 tp2-spawn-c8 8 64
  began=$SECONDS; systemctl stop vllm@both; say "stopped in $((SECONDS - began)) s; left over: $(pgrep -fc 'VLLM::' || true)"
}
# The smoke model over both chips by fork: its answer is known.
smoke() {
  local at; at=$(echo /carried/weights/baremetal/gpt-oss-smoke/*)
  method both fork
  systemctl reset-failed smoke 2>/dev/null || true
  systemd-run --quiet --unit=smoke -p User=vllm -p EnvironmentFile=/etc/vllm/both.env "$(dirname "$(python)")/vllm" serve "$at" \
    --served-model-name baremetal/gpt-oss-smoke --tensor-parallel-size 2 --enforce-eager --gpu-memory-utilization 0.3 \
    --max-model-len 4096 --port 8031 --compilation-config '{"pass_config": {"fuse_allreduce_rms": false}}'
  for _ in $(seq 240); do
    curl -sf -o /dev/null http://127.0.0.1:8031/health && break
    systemctl is-active --quiet smoke || break
    sleep 0.5
  done
  if (chat 8031); then say "the smoke model answers over two chips, by fork"; else journalctl -u smoke --no-pager -o cat | tail -25; fi
  systemctl stop smoke || true
}
lane_s() {
  site first -e vllm_start_timeout=260
  background i "$((last - 6))-$((last - 1))"
  pair || say "the pair has failed"
  smoke || say "smoke has failed"
  while systemctl is-active --quiet lane-i; do sleep 0.5; done
  site second -e vllm_compile_sampler=true -e vllm_verify=false
  touch "$result/second-done"
}
lane_i() {
  say "the role compiles FlashInfer's sampler"
  if (cd /carried/site && ansible-playbook -i presets-second.yml prepare.yml -e vllm_compile_sampler=true 2>&1 | timed > "$result/sampler.log"); then
    say "compiled"
  else say "the sampler was not compiled"; tail -30 "$result/sampler.log"; fi
  tail -3 "$result/sampler.log"
  find /opt/vllm -path '*flashinfer/data/aot*' -type f -exec ls -l {} +
  imports
}
lane_a() {
  await 1200 [ -e "$result/second-done" ]
  await 330 systemctl is-active --quiet vllm@big
  say "START big, throughput, nothing cached, the sampler compiled ahead: $(started big); $(warm big)"
  journalctl -u vllm@big --no-pager -o cat | grep -i 'for top-p' | tail -1 || true
  echo "  modules in its own cache: $(find /var/cache/vllm/big/.cache/flashinfer -name '*.so' 2>/dev/null | tr '\n' ' ')"
  load big 8010 throughput-c512-first 512 1024
  again big "throughput, kept caches"
  systemctl stop vllm@big
  sweep 0 8110
}
lane_b() {
  await 1200 [ -e "$result/second-done" ]
  await 250 systemctl is-active --quiet vllm@tuned
  say "START tuned, latency, one chip, nothing cached: $(started tuned); $(warm tuned)"
  load tuned 8020 latency-c8-first 8 80
  for n in 1 2 3; do again tuned "latency, one chip, kept caches, fork, $n"; done
  method tuned spawn; again tuned "latency, one chip, kept caches, spawn"
  systemctl stop vllm@tuned
  sweep 1 8120
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
  # A step that fails is in the log, and the next one follows.
  lane_*) set +e; "$1" ;;
  follow) follow "$2" ;;
  *)
    [ "$(nvidia-smi -L | wc -l)" = 2 ] || fail "two chips are needed"
    echo $(($(date +%s) + $(cat /carried/total 2>/dev/null || echo 1400))) > "$result/end"
    [ -x /usr/local/bin/ansible-playbook ] || install_ansible
    python3.13 /carried/shape.py /carried/weights /carried/site/weights
    python3.13 /carried/site/presets.py
    a="0-$((half - 1))" b="$half-$((last - 1))"
    for each in "big $a" "tuned $b"; do
      mkdir -p "/etc/systemd/system/vllm@${each% *}.service.d"
      printf '[Service]\nCPUAffinity=%s\n' "${each#* }" > "/etc/systemd/system/vllm@${each% *}.service.d/half.conf"
    done
    background s ""; background a "$a"; background b "$b"
    follow "$((${LEFT:-400} - SECONDS))"
    ;;
esac
