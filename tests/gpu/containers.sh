# shellcheck shell=bash disable=SC2154  # setup.sh sets result
# Sourced after setup.sh and measure.sh by one.sh and starts.sh: the smoke model in a container of podman or docker, with the chip by CDI.
# The image is this Debian with its environment: no registry is needed, and every byte is what ran without a container.
# start_image SCRIPT: beside the other steps; SCRIPT has the step `image`
start_image() { systemd-run --quiet --unit=image -E HOME=/root -E "RESULT=$result" bash -c "exec nice bash /carried/$1 image > $result/image.log 2>&1"; }
image() {
  local venv; venv=$(dirname "$(dirname "$(python)")")
  [ -d /carried/ctk ] || { say "the bundle has no container toolkit"; return 0; }
  cp /carried/ctk/nvidia-ctk /carried/ctk/nvidia-cdi-hook /usr/bin/
  mkdir -p /var/run/cdi
  nvidia-ctk cdi generate --output /var/run/cdi/nvidia.yaml 2>&1 | tail -5
  nvidia-ctk cdi list
  # What is mounted into this host: Python 3.12's library, and CUDA's libraries or all of the machine's PyTorch.
  mkdir -p /srv/image/opt /srv/image/usr/lib /srv/image/opt/torch/.venv/lib/python3.12/site-packages
  cp -a --one-file-system /usr /etc /bin /sbin /lib /lib64 /srv/image/
  cp -a /opt/vllm /srv/image/opt/
  if [ -d /opt/machine-torch/torch ]; then cp -aL /opt/machine-torch /srv/image/opt/; fi
  cp -aT /opt/torch/.venv/lib/python3.12/site-packages/nvidia /srv/image/opt/torch/.venv/lib/python3.12/site-packages/nvidia
  cp -aT /usr/lib/python3.12 /srv/image/usr/lib/python3.12
  rm -rf /srv/image/usr/local/nvidia
  mkdir -p /srv/image/tmp /srv/image/run /srv/image/var/tmp
  chmod 1777 /srv/image/tmp /srv/image/var/tmp
  import "$venv" podman
  podman images
  import "$venv" docker || say "docker has no image"
  rm -rf /srv/image
  touch "$result/image-done"
}
# import VENV ENGINE
import() {
  if [ "$2" = docker ] && ! start_docker; then return 1; fi
  "$2" import --change 'ENTRYPOINT ["vllm", "serve"]' --change "ENV PATH=$1/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    - localhost/vllm:gpu-test < <(tar -C /srv/image -cf - .) 2>&1 | tail -1
}
# A daemon that cannot have a network of its own still runs containers that use the host's.
start_docker() {
  if systemctl start docker; then return 0; fi
  say "docker does not start here: $(journalctl -u docker --no-pager -o cat | grep -iE 'failed|error' | tail -2 | cut -c1-400)"
  mkdir -p /etc/docker
  echo '{"bridge": "none", "iptables": false, "ip6tables": false}' > /etc/docker/daemon.json
  systemctl reset-failed docker
  systemctl start docker || { say "nor without a network: $(journalctl -u docker --no-pager -o cat | tail -3 | cut -c1-400)"; return 1; }
}
# container ENGINE
container() {
  local limits=() engine=$1
  while systemctl is-active --quiet image; do sleep 1; done
  # It shares the chip.
  systemctl stop 'vllm@*'
  [ -e "$result/image.shown" ] || { cat "$result/image.log"; touch "$result/image.shown"; }
  [ -e "$result/image-done" ] || { say "there is no image"; return 0; }
  if [ "$engine" = podman ] && ! podman run --rm --network host --device nvidia.com/gpu=all --entrypoint nvidia-smi localhost/vllm:gpu-test -L; then
    limits=(--cgroups=disabled)
    mkdir -p /etc/containers/containers.conf.d
    printf '[containers]\npids_limit = 0\n' > /etc/containers/containers.conf.d/no-pids.conf
    say "no limit of processes: $(cat /sys/fs/cgroup/cgroup.controllers) handed down: $(cat /sys/fs/cgroup/cgroup.subtree_control)"
  fi
  # The role tells docker of CDI.
  [ "$engine" = docker ] || podman run --rm --network host "${limits[@]}" --device nvidia.com/gpu=all --entrypoint python localhost/vllm:gpu-test -c \
    'import torch; x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16); print(torch.cuda.get_device_name(), (x @ x).float().std().item())'
  if ! site "$engine"; then
    journalctl -u 'vllm@chat' --no-pager -o cat | grep -v Route | tail -30 | cut -c1-300
    systemctl stop vllm@chat
    return 0
  fi
  (chat 8040) || true
  say "START chat, $engine: $(started chat); $(systemd-analyze security vllm@chat.service --no-pager | tail -1)"
  "$engine" ps --format '{{.Names}} {{.Image}} {{.Status}}'
  if site "$engine"; then (chat 8040) || true; fi
  if (cd /carried/site && playbook "starts-$engine.yml" verify.yml > "$result/verify-$engine.log" 2>&1); then say "verify.yml, $engine: passed"; else tail -5 "$result/verify-$engine.log"; fi
  systemctl restart vllm@chat && say "START chat, $engine, again: $(started chat)"
  systemctl stop vllm@chat
}
