#!/usr/bin/env bash
# Runs inside the first of the two Debian hosts that run.sh has booted, each with one chip: each has a lane of its own with steps of starts.sh,
# then both serve a model behind a gateway on the first one.
#   pair.sh              all of it, in the background, and the logs
#   pair.sh follow S     wait S seconds and show what is new in the logs
#   pair.sh again STEP.. steps of the gateway once more, after a failure: scale, fair, places
# STEPS has the steps of gpu-a, those of gpu-b, those of the gateway, and what both do with the time that is left, with " / " between them.
# The file /carried/began has the time since when the machine is there, /carried/total the seconds from then on, and /carried/gateway-seconds
# those of them that the steps of the gateway need.
set -euo pipefail
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh
# shellcheck source=tests/gpu/measure.sh
. /carried/measure.sh
presets=b-servers-1,b-servers-4,b-own-plain,b-own-balanced,b-servers-2
all_steps="throughput sweep_presets:b-servers-1,b-servers-4,b-servers-2 / balanced sweep_presets:b-own-plain,b-own-balanced sweep_presets:$presets / scale fair places
 / sweep_presets:$presets sweep_presets:b-balanced,b-api-servers-4,b-servers-1-again,b-balanced-sizes-90,b-balanced-2"
# Seconds that the gateway needs: its steps begin so long before the end, whatever the lanes have left. The first of them compiles for 150 s.
gateway_seconds=$(cat /carried/gateway-seconds 2>/dev/null || echo 760)
hosts=(gpu-a gpu-b)
far() { ssh -o BatchMode=yes -o ConnectTimeout=10 10.20.0.2 "$@"; }
# on HOST COMMAND...
on() { if [ "$1" = gpu-a ]; then "${@:2}"; else far "$(printf '%q ' "${@:2}")"; fi; }
steps() { awk -v RS=' / ' -v number="$1" 'NR == number' <<< "${STEPS:-${all_steps//$'\n'/}}" | tr '\n' ' '; }
lane_of() {
  on "$1" systemctl reset-failed lane 2>/dev/null || true
  on "$1" systemd-run --quiet --unit=lane -E HOME=/root -E LANG=C.UTF-8 -E "STEPS=$2" -E "RESULT=$result/$1" \
    bash -c "exec bash /carried/starts.sh lane >> $result/$1/lane.log 2>&1"
}
# lanes END STEPS STEPS: those of each host, which are stopped when they are not done a minute after END
lanes() {
  local number host busy
  for number in 0 1; do
    host=${hosts[number]}
    echo "$1" > "$result/$host/end"
    lane_of "$host" "${@:number+2:1}" || say "FAILED: the lane of $host"
  done
  while sleep 1; do
    busy=
    for host in "${hosts[@]}"; do [[ $(on "$host" systemctl is-active lane || true) != @(active|activating) ]] || busy+=" $host"; done
    [ -n "$busy" ] || break
    if [ "$(date +%s)" -gt $(($1 + 60)) ]; then
      say "stopped before their end:$busy"
      for host in $busy; do on "$host" systemctl stop lane; done
      break
    fi
  done
  for host in "${hosts[@]}"; do on "$host" systemctl stop 'vllm@*' || true; done
}
site() {
  local began=$SECONDS
  say "site.yml, $1"
  if ! (cd /carried/site && playbook "pair-$1.yml" site.yml > "$result/site-$1.log" 2>&1); then
    tail -40 "$result/site-$1.log" | cut -c1-900; say "FAILED: site.yml, $1"
    for host in "${hosts[@]}"; do on "$host" journalctl -u "vllm@*" -n 60 --no-pager -o cat | grep -v Route | tail -20 | cut -c1-300; done
    return 1
  fi
  say "site.yml, $1, took $((SECONDS - began)) s: $(grep -E '^gpu-. +:' "$result/site-$1.log" | tr -s ' ' | paste -sd' ')"
}
# gateway INVENTORY ADMISSION [ARGUMENT...]
gateway() {
  local began=$SECONDS
  if ! (cd /carried/site && playbook "pair-$1.yml" gateway.yml -e "gateway_admission=$2" "${@:3}" > "$result/gateway-$1-$2.log" 2>&1); then
    tail -40 "$result/gateway-$1-$2.log" | cut -c1-900; say "FAILED: gateway.yml, $1, $2"
    journalctl -u haproxy -u gateway-agent --no-pager -o cat | tail -20 | cut -c1-300
    return 1
  fi
  say "gateway.yml, $1, admission $2, took $((SECONDS - began)) s: $(grep -E '^gpu-. +:' "$result/gateway-$1-$2.log" | tr -s ' ')"
  # Both servers are there.
  until [ "$(servers_up)" = 2 ]; do [ $((SECONDS - began)) -lt 90 ] || { say "FAILED: servers: $(servers_up)"; return 1; }; sleep 0.5; done
}
servers_up() { curl -s http://127.0.0.1:8404/metrics | grep -c '^haproxy_server_status{.*server="gpu-[ab]--chat",state="UP"} 1' || true; }
trace() { python3.13 /carried/fair.py 8080 /carried/keys "$result/$1.json" 10.20.0.1:8010 10.20.0.2:8010 "${@:2}" 2>&1 | tail -5; }
# as_throughput: chat starts with the kernels that throughput has compiled on the first host
as_throughput() {
  local host
  for host in /var/cache/kept-throughput /var/cache/vllm/sweep; do [ ! -d "$host" ] || cp -anT "$host" /carried/kept 2>/dev/null || true; done
  for host in "${hosts[@]}"; do
    on "$host" sh -c '[ ! -d /carried/kept ] || { mkdir -p /var/cache/vllm/chat; cp -an /carried/kept/. /var/cache/vllm/chat/; chown -R vllm: /var/cache/vllm/chat; }' || true
  done
}
# A trace of short chats that come in bursts and as much batch as there is, first come first served, then with classes.
fair() {
  site fair || return 1
  say "START chat: gpu-a $(started chat), gpu-b $(started chat far)"
  gateway fair off || return 1
  trace off both 60
  gateway fair auto || return 1
  trace auto-alone gold 15
  trace auto both 60
  say "limits: $(curl -s http://127.0.0.1:8404/metrics | grep '^haproxy_server_limit_sessions.*--chat' | sed 's/.*server=//' | tr '\n' ' ')"
  curl -s http://127.0.0.1:8404/metrics/admission > "$result/admission.txt" || true
  say "admission: $(grep -E '^inference_gateway_admission_requests_total' "$result/admission.txt" | sed 's/.*requests_total//' | tr '\n' ' ' | cut -c1-600)"
}
# The same after fair, with fewer places than the engines have: what gold gains by it and what batch loses.
places() {
  [ "$(left)" -gt 100 ] || { say "no time for fewer places"; return 0; }
  gateway fair auto -e '{"gateway_services": {"chat": {"places": 192}}}' || return 1
  trace auto-192 both 60
}
# one ADDRESS MODEL: what comes of a request for one token
one() {
  curl -s -m 60 -o /dev/null -w 'status %{http_code} after %{time_total} s' -H 'Content-Type: application/json' \
    -d "{\"model\": \"$2\", \"prompt\": \"x\", \"max_tokens\": 1}" "http://$1/v1/completions" || true
}
# asleep: 2 when agent and HAProxy know that a replica sleeps
asleep() {
  curl -s http://127.0.0.1:8404/metrics/scale http://127.0.0.1:8404/metrics | grep -cE 'state="asleep"} 1$|server="gpu-b--chat",state="NOLB"} 1$' || true
}
# A second replica that sleeps, because another model has its chip, and wakes with the load.
scale() {
  local began
  [ "$(left)" -gt 130 ] || { say "no time for scale"; return 0; }
  site scale || return 1
  gateway scale auto || return 1
  # The gateway would do this after ten minutes without a load.
  far touch /run/vllm/chat/spare
  began=$(date +%s%N)
  say "the other model on gpu-b: $(one 10.20.0.2:8040 baremetal/gpt-oss-smoke)"
  say "the model on gpu-a: $(one 10.20.0.1:8010 openai/gpt-oss-20b)"
  for _ in $(seq 30); do [ "$(asleep)" = 2 ] && break; sleep 0.5; done
  say "asleep for $(asleep) of 2 after $((($(date +%s%N) - began) / 1000000)) ms: $(curl -s http://127.0.0.1:8404/metrics/scale | grep '_replicas{' | sed 's/.*_replicas//' | tr '\n' ' ')"
  trace scale scale 40
  far journalctl -u 'vllm-residents@gpu0' -u vllm-scale --no-pager -o short-monotonic -n 12 | cut -c1-200
  journalctl -u gateway-agent --no-pager -o short-monotonic -g scale -n 8 | cut -c1-200 || true
}
save() {
  local host
  for host in "${hosts[@]}"; do
    on "$host" journalctl -u 'vllm*' -u haproxy -u 'gateway*' --no-pager -o short-monotonic -n 20000 | gzip > "$result/$host/journal.txt.gz" || true
  done
}
visit() {
  local step
  set +e
  lanes $(($(cat "$result/end") - gateway_seconds)) "$(steps 1)" "$(steps 2)"
  say "the lanes have ended"
  as_throughput
  for step in $(steps 3); do "$step" || say "FAILED: $step"; save; done
  say "the gateway's steps have ended"
  # Who was stopped in the middle of a variant has left its claim.
  for step in "$result"/sweep/*.claim; do [ -e "${step%.claim}.json" ] || rm -f "$step"; done
  if [ "$(left)" -gt 90 ]; then lanes "$(cat "$result/end")" "$(steps 4)" "$(steps 4)"; save; fi
  say "all has ended"
}
follow() {
  local end=$((SECONDS + $1)) each shown
  while systemctl is-active --quiet visit && [ "$SECONDS" -lt "$end" ]; do sleep 1; done
  # What no call has shown yet. A call shows 12,000 characters; the whole logs come back in a file.
  for each in gpu-a/lane gpu-b/lane visit; do
    shown=$(cat "$result/$each.shown" 2>/dev/null || echo 0)
    echo "== $each"
    tail -n "+$((shown + 1))" "$result/$each.log" 2>/dev/null | cut -c1-420 || true
    wc -l < "$result/$each.log" > "$result/$each.shown" || true
  done
  if systemctl is-active --quiet visit; then say "still running"; else say "the visit has ended"; fi
}
case ${1:-} in
  visit) visit ;;
  follow) follow "$2" ;;
  again) for step in "${@:2}"; do "$step" || say "FAILED: $step"; save; done ;;
  *)
    began=$(cat /carried/began 2>/dev/null || date +%s)
    echo $((began + $(cat /carried/total 2>/dev/null || echo 1640))) > "$result/end"
    mkdir -p "$result"/gpu-{a,b} /carried/keys
    umask 077
    for team in product nightly; do python3.13 -c 'import secrets; print(secrets.token_hex(32))' > "/carried/keys/$team.key"; done
    umask 022
    nvidia-smi -L; far nvidia-smi -L || say "FAILED: gpu-b"
    python3.13 /carried/shape.py /carried/weights /carried/site/weights
    python3.13 /carried/site/presets.py "$(nvidia-smi --query-gpu=name --format=csv,noheader | grep -oE 'H100|H200' | tr '[:upper:]' '[:lower:]')"
    for host in "${hosts[@]}"; do on "$host" env "RESULT=$result/$host" bash /carried/starts.sh prepare & done
    wait
    systemd-run --quiet --unit=visit -E HOME=/root -E "STEPS=${STEPS:-}" -E LANG=C.UTF-8 bash -c "exec bash /carried/pair.sh visit > $result/visit.log 2>&1"
    follow "$((${LEFT:-400} - SECONDS))"
    ;;
esac
