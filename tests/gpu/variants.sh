#!/usr/bin/env bash
# Runs inside the Debian of run.sh, by first_minute.sh: variants of vllm@tuned one after the other, each started and put
# under loads of fresh seeds. Faster than playbooks/tune.yml, which starts a variant for each figure.
set -euo pipefail
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh
python=(/opt/vllm/*/bin/python)
config=/etc/vllm/tuned.yaml env=/etc/vllm/tuned.env
dropin=/etc/systemd/system/vllm@tuned.service.d/variant.conf
cp "$config" "$result/tuned-base.yaml"
cp "$env" "$result/tuned-base.env"

started() { bash /carried/first_minute.sh started tuned; }
warm_up() { journalctl -u vllm@tuned --no-pager -o cat | grep '^Warm-up' | tail -1 || true; }

# load NAME AT_ONCE REQUESTS
load() {
  local since seed=$RANDOM
  since=$(date +%s)
  say "$1, seed $seed: $("${python[0]}" /carried/load.py 8020 "$2" "$3" "$seed" "$result/v-$1.json" 2>&1 | tail -3)"
  echo "  kernels compiled: $(find /var/cache/vllm/tuned -name '*.cubin' -newermt "@$since" | wc -l)"
}

# variant NAME [KEY=VALUE...]: capital keys are variables, others are settings; an empty value removes one
variant() {
  local name=$1 each
  shift
  cp "$result/tuned-base.yaml" "$config"
  cp "$result/tuned-base.env" "$env"
  mkdir -p "${dropin%/*}"
  echo '[Service]' > "$dropin"
  for each in "$@"; do
    if [[ $each = [A-Z]* ]]; then
      sed -i "/^${each%%=*}=/d" "$env"
      [ -z "${each#*=}" ] || echo "Environment=$each" >> "$dropin"
    else
      sed -i "/^${each%%=*}:/d" "$config"
      [ -z "${each#*=}" ] || echo "${each%%=*}: ${each#*=}" >> "$config"
    fi
  done
  cp "$config" "$result/v-$name.yaml"
  systemctl daemon-reload
  systemctl reset-failed vllm@tuned || true
  if systemctl restart vllm@tuned; then
    say "VARIANT $name ($*): $(started); $(warm_up)"
  else
    say "VARIANT $name ($*) did not start"
    journalctl -u vllm@tuned --no-pager -o cat | grep -v Route | tail -25
    return 1
  fi
}

few() { load "$1-c1" 1 4; load "$1-c8-a" 8 80; load "$1-c8-b" 8 80; }
many() { load "$1-c64-first" 64 512; load "$1-c64-steady" 64 512; load "$1-c512-first" 512 1024; load "$1-c512-steady" 512 1024; }
sampled() { SAMPLING='{"temperature": 1, "top_p": 0.9, "top_k": 40}' load "$1-sampled-a" 64 384; SAMPLING='{"temperature": 1, "top_p": 0.9, "top_k": 40}' load "$1-sampled-b" 64 384; }

say "VARIANT latency, nothing cached, no FlashInfer sampler: $(started); $(warm_up)"
few marlin1
# How long the imports take, and whether the packages have bytecode.
echo "bytecode of PyTorch: $(find /opt/torch/.venv -name '*.pyc' | wc -l) of $(find /opt/torch/.venv -name '*.py' | wc -l) files; of vLLM's environment: $(find /opt/vllm/ -name '*.pyc' | wc -l) of $(find /opt/vllm/ -name '*.py' | wc -l)"
for number in 1 2; do
  began=$(date +%s.%N)
  (cd /tmp && setpriv --reuid=vllm --regid=vllm --clear-groups env HOME=/tmp "${python[0]}" -X importtime -c \
    'import vllm.entrypoints.cli.main, vllm.entrypoints.openai.api_server, vllm.v1.engine.core, vllm.v1.worker.gpu_worker' \
    > /dev/null 2> "$result/importtime-$number.txt") || tail -3 "$result/importtime-$number.txt"
  echo "imports, run $number: $(echo "$(date +%s.%N) $began" | awk '{ print $1 - $2 }') s"
done
gzip -f "$result"/importtime-*.txt
# FlashInfer's sampler as an installation could compile it: no GPU visible, few processors, as the user of the unit.
last=$(getconf _NPROCESSORS_ONLN)
last="$((last - 3))-$((last - 1))"
cat > /run/prebuild.sh <<BUILD
cd /tmp
began=\$(date +%s)
${python[0]} -c 'from flashinfer.jit.sampling import gen_sampling_module as sampling; sampling().build_and_load()'
echo "sampler compiled, status \$?, in \$((\$(date +%s) - began)) s"
BUILD
quoted() { sed -n "s/^$1=//p" "$env" | tr -d '"'; }
systemd-run --quiet --unit=prebuild -p CPUAffinity="$last" -p User=vllm \
  -E HOME=/var/cache/vllm/tuned -E CUDA_VISIBLE_DEVICES= -E FLASHINFER_CUDA_ARCH_LIST=9.0a -E "PATH=$(quoted PATH)" \
  -E "CUDA_HOME=$(quoted CUDA_HOME)" -E "LIBRARY_PATH=$(quoted LIBRARY_PATH)" bash /run/prebuild.sh || true

fork=VLLM_WORKER_MULTIPROC_METHOD=fork
if variant marlin2 $fork; then few marlin2; else fork=; variant marlin2 && few marlin2; fi
variant triton1 $fork moe-backend= && few triton1
journalctl -u prebuild --no-pager -o cat | tail -5
find /var/cache/vllm/tuned/.cache/flashinfer -name '*.so' -size +10k -exec ls -la {} + || true
plain="max-num-seqs= moe-backend= performance-mode= max-cudagraph-capture-size="
steps="[1, 2, 4, $(seq -s ', ' 8 8 248), $(seq -s ', ' 256 16 1024), 1280, 1536, 2048, 3072, 4096, 6144, 8192]"
# shellcheck disable=SC2086
variant coarse1 $fork $plain "cudagraph-capture-sizes=$steps" && many coarse1
variant triton2 $fork moe-backend= && few triton2
variant marlin3 $fork && load marlin3-c8-a 8 80
# shellcheck disable=SC2086
variant coarse2 $fork $plain "cudagraph-capture-sizes=$steps" && { load coarse2-c512-first 512 1024; sampled coarse2; }
# shellcheck disable=SC2086
variant throughput1 $fork $plain max-cudagraph-capture-size=2048 max-num-batched-tokens=8192 stream-interval=20 && many throughput1
# shellcheck disable=SC2086
variant flashinfer $fork $plain VLLM_USE_FLASHINFER_SAMPLER=1 && { sampled flashinfer; many flashinfer; }
# shellcheck disable=SC2086
variant coarse3 $fork $plain "cudagraph-capture-sizes=$steps" && { load coarse3-c64-first 64 512; load coarse3-c64-steady 64 512; }
say "done"
