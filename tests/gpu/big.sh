#!/usr/bin/env bash
# Runs inside the Debian of run.sh, by run.sh itself or after two.sh: gpt-oss-20b's shape with random weights. On the first
# chip an instance is started again and again (first_minute.sh run). On the second chip another one, of the preset latency, is
# started with one variant of its settings after the other (variants.sh); with one chip alone that comes last. follow.sh shows how far they are.
set -euo pipefail
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh
[ -x /usr/local/bin/ansible-playbook ] || install_ansible
python3.13 /carried/shape.py /carried/weights /carried/site/weights
cd /carried/site
half=$(($(nproc) / 2)) processors=()
if [ "$(nvidia-smi -L | wc -l)" = 1 ]; then
  sed '/^        tuned:/,$d' hosts-big.yml > hosts-first.yml
  sed -i 's/chips: \[1\]/chips: [0]/; /vllm_verify_expect/a\      vllm_remove_unlisted: true' hosts-tune.yml
else
  cp hosts-big.yml hosts-first.yml
  # Neither works on the processors of the other.
  processors=("0-$((half - 1))" "$half-$(($(nproc) - 1))")
  for number in 0 1; do
    unit=(big tuned)
    mkdir -p "/etc/systemd/system/vllm@${unit[number]}.service.d"
    printf '[Service]\nCPUAffinity=%s\n' "${processors[number]}" > "/etc/systemd/system/vllm@${unit[number]}.service.d/half.conf"
  done
fi

say "site.yml"
playbook hosts-first.yml site.yml > "$result/big-1.log" 2>&1 || { tail -60 "$result/big-1.log"; fail "site.yml"; }
tail -3 "$result/big-1.log"
for unit in big tuned; do
  systemctl is-active --quiet "vllm@$unit" || continue
  echo "$unit: $(bash /carried/first_minute.sh started "$unit")"
  journalctl -u "vllm@$unit" --no-pager -o cat | grep '^Warm-up' || true
done

# background UNIT PROCESSORS COMMAND...
background() {
  systemd-run --quiet --unit="$1" ${2:+-p CPUAffinity="$2"} -E HOME=/root -E LANG=C.UTF-8 bash -c "exec ${*:3} > $result/$1.log 2>&1"
}
background series "${processors[0]:-}" bash /carried/first_minute.sh run
background tune "${processors[1]:-}" bash /carried/first_minute.sh tune
exec bash /carried/follow.sh "$((${LEFT:-${1:-300}} - SECONDS))"
