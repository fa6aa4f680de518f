#!/usr/bin/env bash
# Run a script of the bundle in the Debian that run.sh has booted:  enter.sh OUT SCRIPT [ARGUMENT...]
# OUT gets its output, and the results of all runs so far.
set -euo pipefail
out=$1
shift
name=gpu-test
[ -e /srv/gpu-test/leader-gpu-test ] || name=gpu-a
enter=(nsenter -t "$(cat "/srv/gpu-test/leader-$name")" -m -u -i -p -n -C -r -w env -i HOME=/root LANG=C.UTF-8 TERM=dumb
  NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
status=0
timeout --foreground "${LIMIT:-560}" "${enter[@]}" bash "/carried/$1" "${@:2}" 2>&1 | tee "$out/${1%.sh}-${2:-}.log" || status=$?
timeout 20 "${enter[@]}" journalctl -u 'vllm@*' -u smoke --no-pager -o short-monotonic |
  gzip > "$out/journal-big.txt.gz" || true
tar -czf "$out/details.tar.gz" -C /srv/gpu-test/result . || true
exit "$status"
