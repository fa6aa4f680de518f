#!/usr/bin/env bash
# Runs inside the Debian of run.sh on a machine with one chip: starts and loads of gpt-oss-20b's presets, a container, then the rest of
# site/sweep.yml as far as the time goes.
#   one.sh             all of it, or the steps in STEPS, in the background, and the log
#   one.sh follow S    wait S seconds and show the log
# The file /carried/total has the seconds for all of it.
set -euo pipefail
# load.py reads the energy of this chip.
export CHIP=0
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh
# shellcheck source=tests/gpu/measure.sh
. /carried/measure.sh
# shellcheck source=tests/gpu/containers.sh
. /carried/containers.sh
# site NAME [ARGUMENT...]
site() {
  local began=$SECONDS
  say "site.yml, $1"
  if ! (cd /carried/site && playbook "one-$1.yml" site.yml "${@:2}" > "$result/site-$1.log" 2>&1); then
    tail -50 "$result/site-$1.log" | cut -c1-800; say "FAILED: site.yml, $1"; return 1
  fi
  tail -2 "$result/site-$1.log" | head -1
  say "site.yml, $1, took $((SECONDS - began)) s"
  cp /etc/vllm/*.yaml /etc/vllm/*.env "$result/" 2>/dev/null || true
  chmod a+r "$result"/*.yaml
}
# What the machine's kernel can do, for a visit with two hosts.
probe() {
  if nft list tables > /dev/null 2>&1 && nft add table inet probe && nft delete table inet probe; then say "nftables: yes"; else say "nftables: no"; fi
  if unshare -n ip link add probe0 type veth peer name probe1; then say "veth: yes"; else say "veth: no"; fi
  cat /sys/fs/cgroup/cgroup.controllers
}
# Kernels of Marlin that the driver compiles for this chip are kept in its own cache.
driver_cache() { find /var/cache/vllm/tuned -path '*ComputeCache*' -type f -size +100k -printf '  %s %p\n' | head -20; }
latency() {
  site latency || return 0
  say "START tuned, latency, nothing cached: $(started tuned); $(warm tuned)"
  driver_cache
  load tuned 8020 latency-c8-first 8 80
  again tuned "latency, kept caches"
  mkdir -p /run/kept
  find /var/cache/vllm/tuned -maxdepth 2 -name .nv -exec mv {} /run/kept/ \;
  ls -a /run/kept
  again tuned "latency, kept caches, without that of the driver"
  driver_cache
}
base() {
  site balanced || return 0
  say "START big, balanced, nothing cached, no FlashInfer sampler: $(started big); $(warm big)"
}
# The environment and the configuration of balanced for a sweep, without the wait for its start.
configure() {
  (cd /carried/site && playbook one-balanced.yml site.yml > "$result/site-configure.log" 2>&1) &
  until [ "$(systemctl show vllm@big --property=ActiveState --value)" = activating ] || ! kill -0 $! 2>/dev/null; do sleep 1; done
  pkill -f one-balanced.yml
  cp /etc/vllm/big.yaml /etc/vllm/big.env "$result/"
  chmod a+r "$result/big.yaml"
  systemctl stop vllm@big
  say "configured"
}
balanced() {
  base
  for number in 1 2 3; do
    again big "balanced, kept caches, $number"
    load big 8010 "balanced-$number-c512-first" 512 1024
    load big 8010 "balanced-$number-c512-second" 512 1024
  done
}
servers() {
  site servers || return 0
  say "START big, balanced, 4 API servers: $(started big); $(warm big)"
  load big 8010 servers-c512-first 512 1024
  load big 8010 servers-c512-second 512 1024
  counted
  say "site.yml again"
  (cd /carried/site && playbook one-servers.yml site.yml 2>&1 | grep -E '^gpu-test +:') || true
  local began=$SECONDS; systemctl stop vllm@big; say "stopped in $((SECONDS - began)) s; left over: $(pgrep -fc 'VLLM::' || true)"
}
# Do several API servers count as one? 64 requests with a gateway's header, and the records of one of the servers.
counted() {
  "$(python)" - <<'PYTHON'
import asyncio, json, time
import aiohttp

URL = "http://127.0.0.1:8010"

async def main():
    async with aiohttp.ClientSession() as session:
        async def ask(number):
            header = {"x-gateway-usage": f"gateway client team r{number} {int(time.time())}"}
            body = {"model": "openai/gpt-oss-20b", "prompt": [2000 + number] * 50, "max_tokens": 20, "ignore_eos": True}
            async with session.post(f"{URL}/v1/completions", json=body, headers=header) as answer:
                return (await answer.json())["usage"]
        used = await asyncio.gather(*(ask(number) for number in range(64)))
        print("usage in answers:", len(used), sum(each["completion_tokens"] for each in used))
    for _attempt in range(4):
        # Another connection each time, and so another server.
        async with aiohttp.ClientSession() as session, session.get(f"{URL}/gateway/usage?wait=2") as answer:
            rows = [json.loads(line) for line in (await answer.text()).splitlines()]
            print("records:", answer.status, len(rows), rows[:1], sum(row.get("completion", 0) for row in rows))

asyncio.run(main())
PYTHON
}
# ask_big: seconds and status of a request to gpt-oss-20b's shape
ask_big() {
  curl --silent --output /dev/null --max-time 100 --write-out '%{time_total} s, status %{http_code}' -H 'Content-Type: application/json' \
    -d '{"model": "openai/gpt-oss-20b", "prompt": "Is it awake?", "max_tokens": 1}' http://127.0.0.1:8010/v1/completions
}
# Two instances share the chip by sleep mode: each request goes to the one that sleeps.
shared() {
  local number began
  site shared || { journalctl -u 'vllm-residents@gpu0' -u 'vllm@*' --no-pager -o cat | grep -v Route | tail -40; return 0; }
  say "START big: $(started big); START chat: $(started chat)"
  for number in 1 2 3 4 5; do
    say "big, $number: $(ask_big); $(nvidia-smi --query-gpu=memory.used --format=csv,noheader)"
    began=$(date +%s%N)
    (chat 8040) || true
    say "chat, $number: $((($(date +%s%N) - began) / 1000000)) ms"
  done
  load big 8010 shared-c64 64 192 &
  for number in 1 2 3; do sleep 2; (chat 8040) || true; done
  wait $!
  say "for clients: $(for path in sleep wake_up is_sleeping collective_rpc; do curl -s -o /dev/null -w "$path %{http_code} " -X POST "http://127.0.0.1:8010/$path"; done)"
  say "restart of chat"
  systemctl restart vllm@chat &
  say "big meanwhile: $(ask_big)"
  wait $!
  (chat 8040) || true
  (cd /carried/site && playbook one-shared.yml site.yml 2>&1 | grep -E '^gpu-test +:') || true
  journalctl -u 'vllm-residents@gpu0' --no-pager -o short-monotonic | tail -60
  systemctl stop vllm@big vllm@chat
  say "service: $(systemctl is-active vllm-residents@gpu0)"
}
# gateway [WHAT,WHAT...]: HAProxy and the tokens that it counts, in front of four engines
gateway() {
  local measured=${1:-single,64,512,affinity,servers}
  install -d "$place/tests/fakes"
  cp /carried/fakes/gateways.py "$place/tests/fakes/"
  with_cache /var/cache/vllm/gateway env "COLLECTION=$place" "MEASURE=${measured//,/ }" "$(python)" \
    /carried/gateway.py /carried/site/sweep.yml "$result/big.yaml" 0 8120 "$result"
  systemctl stop haproxy
}
lane() {
  set +e
  run_steps probe latency start_image:one.sh balanced servers container:podman sweep:0:8110
}
case ${1:-} in
  lane | image) "$1" ;;
  follow) follow_lane "$2" ;;
  *)
    echo $(($(date +%s) + $(cat /carried/total 2>/dev/null || echo 1400))) > "$result/end"
    [ -x /usr/local/bin/ansible-playbook ] || install_ansible
    python3.13 /carried/shape.py /carried/weights /carried/site/weights
    python3.13 /carried/site/presets.py
    start_lane one.sh
    follow_lane "$((${LEFT:-400} - SECONDS))"
    ;;
esac
