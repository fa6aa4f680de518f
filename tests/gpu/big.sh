#!/usr/bin/env bash
# Runs inside the Debian of run.sh, after two.sh: gpt-oss-20b's shape with random weights on both chips. One instance is started
# again and again (first_minute.sh), playbooks/tune.yml works on the other one; follow.sh shows how far they are.
set -euo pipefail
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh
python3.13 /carried/shape.py /carried/weights /carried/site/weights

say "site.yml"
playbook hosts-big.yml site.yml > "$result/big-1.log" 2>&1 || { tail -60 "$result/big-1.log"; fail "site.yml"; }
tail -3 "$result/big-1.log"
for unit in big tuned; do
  echo "$unit: $(bash /carried/first_minute.sh started "$unit")"
  journalctl -u "vllm@$unit" --no-pager -o cat | grep '^Warm-up' || true
done

background() { systemd-run --quiet --unit="$1" -E HOME=/root -E LANG=C.UTF-8 bash -c "exec ${*:2} > $result/$1.log 2>&1"; }
background series bash /carried/first_minute.sh run
background tune bash -c "'. /carried/setup.sh; playbook hosts-tune.yml tune.yml -l gpu-test -e @/carried/site/tune.yml -e tune_dir=$result/tune'"
exec bash /carried/follow.sh "${1:-300}"
