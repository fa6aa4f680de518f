#!/usr/bin/env bash
# Runs inside the Debian of run.sh, after it: what the warm-up of a start is worth.  warm.sh cold | warm
# A model of gpt-oss-20b's shape with random weights goes through the role's unit and start script; `vllm bench serve` asks
# it right after systemd calls it active, and again with other seeds. `cold` starts it for the first time; `warm` starts it
# twice more with the compiled kernels kept, with the warm-up and without.
set -euo pipefail
result=/carried/result
model=/carried/big
vllm=(/opt/vllm/*/bin/vllm)
say() { printf '%s [%3ds %s] %s\n' "$(date -u +%H:%M:%S)" "$SECONDS" "$0" "$*"; }

make_model() {
  mkdir -p "$model"
  cp /carried/weights/baremetal/gpt-oss-smoke/*/{tokenizer,special_tokens_map,generation_config}*json "$model/"
  python3 - /carried/weights/baremetal/gpt-oss-smoke/*/config.json "$model/config.json" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
config.update(
    hidden_size=2880, intermediate_size=2880, num_attention_heads=64, num_key_value_heads=8, num_hidden_layers=24,
    num_local_experts=32, layer_types=["sliding_attention", "full_attention"] * 12,
    quantization_config={
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
    },
)
json.dump(config, open(sys.argv[2], "w"))
PYTHON
  mkdir -p /var/lib/vllm/big
  ln -sfn "$model" /var/lib/vllm/big/model
  sed 's#/chat#/big#g' /var/lib/vllm/chat/serve > /var/lib/vllm/big/serve
  chmod 755 /var/lib/vllm/big/serve
  sed 's#/chat#/big#g' /etc/vllm/chat.env > /etc/vllm/big.env
  cat > /etc/vllm/big.yaml <<YAML
host: 127.0.0.1
port: 8001
model: $model
served-model-name: big
load-format: dummy
YAML
  chown vllm:vllm /etc/vllm/big.*
}

start() {
  local began=$SECONDS
  systemctl restart vllm@big || { journalctl -u vllm@big --no-pager | tail -60; exit 1; }
  say "$1: active after $((SECONDS - began)) s"
  journalctl -u vllm@big --no-pager --output=cat --since=-15min | grep -E '^Warm-up' | tail -1 || true
}

# bench NAME CONCURRENCY REQUESTS SEED
bench() {
  "${vllm[0]}" bench serve --backend vllm --base-url http://127.0.0.1:8001 --model big --tokenizer "$model" \
    --dataset-name random --random-input-len 1024 --random-output-len 512 --ignore-eos --num-prompts "$3" \
    --max-concurrency "$2" --seed "$4" --save-result --result-filename "$result/$1.json" > "$result/$1.log" 2>&1 ||
    { tail -20 "$result/$1.log"; return 0; }
  say "$1: $(python3 -c "
import json, sys
r = json.load(open(sys.argv[1]))
print(f\"{r['output_throughput']:.0f} tok/s, TTFT median {r['median_ttft_ms']:.0f} ms, TPOT median {r['median_tpot_ms']:.1f} ms, \"
      f\"{r['completed']} requests in {r['duration']:.1f} s\")" "$result/$1.json")"
}

if [ "$1" = cold ]; then
  systemctl stop vllm@chat
  make_model
  start "first start, with the warm-up"
  for seed in 11 12 13; do bench "cold-c64-$seed" 64 192 "$seed"; done
  for seed in 21 22; do bench "cold-c512-$seed" 512 1024 "$seed"; done
else
  start "another start, with the warm-up"
  bench warm-c512-31 512 1024 31
  bench warm-c64-32 64 192 32
  mkdir -p /etc/systemd/system/vllm@big.service.d
  # The same line without seconds for the warm-up.
  { printf '[Service]\nExecStartPost=\n'; sed -n 's/^\(ExecStartPost=.*vllm-wait-ready.py %i\) .*/\1/p' /etc/systemd/system/vllm@.service; } \
    > /etc/systemd/system/vllm@big.service.d/cold.conf
  systemctl daemon-reload
  start "another start, without the warm-up"
  for seed in 41 42; do bench "none-c64-$seed" 64 192 "$seed"; done
  bench none-c512-43 512 1024 43
fi
