#!/usr/bin/env bash
# Bring a GPU machine without a network from a bare Debian 13 to a chat:  run.sh PARTS OUT [SCRIPT]
# SCRIPT runs inside: inside.sh, big.sh, one.sh, or on a machine with two chips two.sh, presets.sh, group.sh or pair.sh. PARTS has the parts of
# make_bundle.py's bundle; OUT gets run.log, verify.json and what else explains a failure. The script finds in LEFT the seconds that it has, and in
# STEPS which of its steps to run, when that is set here.
# Needs root, Python 3.12 with PyTorch at /opt/torch/.venv, CUDA's driver below /usr/local/nvidia, and 15 GB of disk.
# Debian boots with systemd in namespaces of its own, on the machine's kernel, driver and network. For group.sh and pair.sh there are two of
# them, gpu-a and gpu-b, each with one chip and half of the processors, and a cable between them in place of the machine's network; the
# script runs on gpu-a.
set -euo pipefail
parts=$1 out=$2 script=${3:-inside.sh}
work=/srv/gpu-test root=/srv/gpu-test/root
hosts=(gpu-test)
case $script in group.sh | pair.sh) hosts=(gpu-a gpu-b) ;; esac
# Each host starts on its own part of the processors: pin FIRST NUMBER is for what this shell begins from then on.
processors=$(nproc) half=$(($(nproc) / ${#hosts[@]}))
pin() { taskset -cp "$1-$(($1 + $2 - 1))" "$$" > /dev/null 2>&1 || true; }
# In all, below the 600 s that one command may take.
limit=${LIMIT:-560}
mkdir -p "$out" "$work"
cp "$parts/began" "$work/" 2>/dev/null || true
exec > >(tee "$out/run.log") 2>&1
say() { printf '%s [%3ds] %s\n' "$(date -u +%H:%M:%S)" "$SECONDS" "$*"; }

say "machine"
uname -r
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || /usr/local/nvidia/bin/nvidia-smi -L
df -h /srv | tail -1

say "unpack"
chmod +x "$parts/zstd"
cat "$parts"/part-* | "$parts/zstd" -dc --long=27 | tar -x -C "$work" -f -
# What this checkout has since the bundle was made.
here=$(cd "$(dirname "$0")" && pwd)
cp "$here"/*.sh "$here"/*.py "$work/"
cp -a "$here/site/." "$work/site/"
mkdir -p "$root"
tar -xJf "$work/rootfs.tar.xz" -C "$root" --exclude='./dev/*'
# PyTorch as it is in an environment: with bytecode, and without packages that no lock has.
# For 0.25.1 only, when the bundle has it.
linked=
if compgen -G "$work/mirror/wheels/machine_torch-*" > /dev/null; then
  /usr/bin/python3.12 "$here/machine_torch.py" /opt/torch/.venv/lib/python3.12/site-packages \
    "$here/../../catalog/releases/requirements/0.25.1-cuda-cp312-x86_64.txt" "$root/opt/machine-torch" > "$work/torch.log" 2>&1 &
  linked=$!
fi
tar -xJf "$work/weights.tar.xz" -C "$work"
chmod -R a+rX "$work"

say "prepare the root file system"
# Python 3.12 and its headers, as a site that builds its own would put them there.
cp /usr/bin/python3.12 "$root/usr/bin/"
libraries=/usr/lib/x86_64-linux-gnu
/usr/bin/python3.12 -c 'import sysconfig; print(sysconfig.get_path("include"))'
for each in /usr/include/python3.12 /usr/include/x86_64-linux-gnu/python3.12; do
  if [ -d "$each" ]; then mkdir -p "$root${each%/*}"; cp -a "$each" "$root${each%/*}/"; else say "MISSING $each"; fi
done
for each in "$libraries"/lib{expat,ffi,sqlite3,python3.12,ssl,crypto,bz2,lzma,z,mpdec,uuid,readline,tinfo}.so*; do
  [ -e "$each" ] && [ ! -e "$root$each" ] && cp -a "$each" "$root$libraries/"
done
# The driver, as a container runtime or a cloud's image brings it: programs and libraries, no packages.
printf '/usr/local/nvidia/lib64\n/usr/local/nvidia/lib\n' > "$root/etc/ld.so.conf.d/nvidia.conf"
# CUDA's libraries of the machine. Those of an environment come first, because PyTorch and others look there first.
for each in /opt/torch/.venv/lib/python3.12/site-packages/nvidia/*/lib; do
  case $each in */nccl/lib) ;; *) echo "$each" ;; esac
done > "$root/etc/ld.so.conf.d/cuda-libraries.conf"
for each in /usr/local/nvidia/bin/*; do ln -sf "$each" "$root/usr/bin/"; done
# NVLink multicast stays off: a program that uses it can take the chips of a shared server out of service.
mkdir -p "$root/etc/systemd/system.conf.d"
printf '[Manager]\nDefaultEnvironment=NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1\n' \
  > "$root/etc/systemd/system.conf.d/multicast.conf"
echo NCCL_NVLS_ENABLE=0 > "$root/etc/nccl.conf"
# Units that need a machine of their own.
for unit in systemd-udevd systemd-udev-trigger systemd-modules-load systemd-sysctl console-getty getty@tty1 \
  systemd-networkd-wait-online systemd-timesyncd; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit.service"
done

# The daemon of docker starts when a step wants it.
rm -f "$root"/etc/systemd/system/*.wants/docker.* "$root"/etc/systemd/system/*.wants/containerd.*

# identity ROOT NAME: what one host has for itself
identity() {
  echo "$2" > "$1/etc/hostname"
  printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$2" > "$1/etc/hosts"
  python3 -c 'import uuid; print(uuid.uuid4().hex)' > "$1/etc/machine-id"
}
identity "$root" "${hosts[0]}"
if ((${#hosts[@]} == 2)); then
  # The first one reaches the second one as root, with a key of its own.
  [ -e "$root/dev/null" ] || mknod -m 666 "$root/dev/null" c 1 3
  install -d -m 700 "$root/root/.ssh"
  rm -f "$root"/etc/ssh/ssh_host_*
  chroot "$root" ssh-keygen -A > /dev/null
  chroot "$root" ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
  cp "$root/root/.ssh/id_ed25519.pub" "$root/root/.ssh/authorized_keys"
  cp -a "$root" "$root-1"
  identity "$root-1" "${hosts[1]}"
  echo "10.20.0.2 $(cut -d' ' -f1,2 "$root/etc/ssh/ssh_host_ed25519_key.pub")" > "$root/root/.ssh/known_hosts"
  rm "$root-1/root/.ssh/id_ed25519"
fi

# boot.sh ROOT WORK NAME NUMBER: NUMBER is that of the only chip and of the network's end, or nothing
cat > "$work/boot.sh" <<'BOOT'
set -e
root=$1 work=$2 name=$3 number=$4
mount --make-rprivate /
mount --bind "$root" "$root"
bind() { [ -e "$1" ] || return 0; mkdir -p "$root$2"; mount --bind "$1" "$root$2"; }
bind "$work" /carried
for each in /opt/torch /usr/local/nvidia /usr/lib/python3.12 /opt/nvidia; do bind "$each" "$each"; done
[ "$root" = "$work/root" ] || bind "$work/root/opt/machine-torch" /opt/machine-torch
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 none "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir -p "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -t tmpfs -o size=32g,mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for node in null zero full random urandom tty kmsg fuse; do cp -a "/dev/$node" "$root/dev/" || true; done
cp -a /dev/nvidia* "$root/dev/"
hostname "$name"
if [ -n "$number" ]; then
  find "$root/dev" -maxdepth 1 -name 'nvidia[0-9]*' ! -name "nvidia$number" -delete
  # Else the driver's library makes the missing nodes again.
  sed 's/^ModifyDeviceFiles: 1/ModifyDeviceFiles: 0/' /proc/driver/nvidia/params > "$work/params"
  mount --bind "$work/params" "$root/proc/driver/nvidia/params"
  # The kernel shows the PCI devices of the whole machine: accelerator_sysfs_root has those of this host.
  mkdir -p "$root/opt/sys/bus/pci/devices"
  for each in /sys/bus/pci/devices/*; do
    information=/proc/driver/nvidia/gpus/${each##*/}/information
    [ -e "$information" ] && ! grep -Eq "^Device Minor:[[:space:]]*$number$" "$information" && continue
    ln -s "$(readlink -f "$each")" "$root/opt/sys/bus/pci/devices/"
  done
fi
cd "$root"
exec env -i container=lxc PATH=/usr/sbin:/usr/bin chroot "$root" /lib/systemd/systemd --log-target=journal
BOOT

if [ -n "$linked" ]; then
  wait "$linked" || { cat "$work/torch.log"; say "FAILED: PyTorch cannot be linked"; exit 1; }
  cat "$work/torch.log"
  [ -e "$root/opt/machine-torch/torch" ] || { say "FAILED: no PyTorch"; exit 1; }
fi

say "boot"
# Containers want limits, which the machine may not hand down.
for controller in cpu memory pids; do echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || true; done
# leader NAME: the process of a host's systemd
leader() {
  local pid
  for pid in $(pgrep -f '^/lib/systemd/systemd --log-target=journal'); do
    [ "$(nsenter -t "$pid" -u hostname)" != "$1" ] || echo "$pid"
  done
}
boot() {
  local name=$1 root=$2 number=$3 group=/sys/fs/cgroup/$1 found outer
  mkdir -p "$group"
  pin "$((${number:-0} * half))" "$half"
  # shellcheck disable=SC2016  # expanded by the inner shell
  setsid bash -c 'echo $$ > "$0/cgroup.procs"; exec unshare -m -p -f -i -u -C ${5:+-n} bash "$1" "$2" "$3" "$4" "$5"' \
    "$group" "$work/boot.sh" "$root" "$work" "$name" "$number" </dev/null > "$work/boot-$name.log" 2>&1 &
  outer=$!
  pin 0 "$processors"
  # systemd can hand down limits only where no other process is in its control group: containers want them.
  until pgrep -P "$outer" > /dev/null || ! kill -0 "$outer"; do sleep 0.02; done
  echo "$outer" > /sys/fs/cgroup/cgroup.procs || true
  for _ in $(seq 30); do
    sleep 1
    found=$(leader "$name")
    [ -n "$found" ] && [ -S "/proc/$found/root/run/systemd/private" ] && break
  done
  cat "$work/boot-$name.log"
  [ -n "$found" ] || { say "FAILED: systemd did not start"; exit 1; }
  echo "$found" > "$work/leader-$name"
}
if ((${#hosts[@]} == 1)); then
  boot "${hosts[0]}" "$root" ""
else
  boot "${hosts[0]}" "$root" 0
  boot "${hosts[1]}" "$root-1" 1
  mount -t proc proc "$root-1/proc"
  network() { chroot "$root-1" ip "$@"; }
  network link add cable0 type veth peer name cable1
  for number in 0 1; do
    pid=$(cat "$work/leader-${hosts[number]}")
    network link set "cable$number" netns "$pid" name eth0
    nsenter -t "$pid" -n -m -r -w sh -c "ip link set lo up; ip address add 10.20.0.$((number + 1))/24 dev eth0; ip link set eth0 up"
  done
  umount "$root-1/proc"
fi
enter=(nsenter -t "$(cat "$work/leader-${hosts[0]}")" -m -u -i -p -n -C -r -w env -i HOME=/root LANG=C.UTF-8 TERM=dumb
  NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
for name in "${hosts[@]}"; do
  for command in ldconfig "systemctl is-system-running --wait"; do
    # shellcheck disable=SC2086  # words
    nsenter -t "$(cat "$work/leader-$name")" -m -u -i -p -n -C -r -w $command || true
  done
done

say "run inside"
status=0
timeout --foreground "$((limit - SECONDS))" "${enter[@]}" LEFT="$((limit - SECONDS - 10))" STEPS="${STEPS:-}" bash "/carried/$script" || status=$?
[ "$status" != 124 ] || say "FAILED: not done after $limit s"
# What explains a failure, whatever it is.
timeout 20 "${enter[@]}" journalctl -u 'vllm@*' --no-pager -o short-monotonic | gzip > "$out/journal.txt.gz" || true
tar -czf "$out/details.tar.gz" -C "$work/result" . || true
cp "$work/result/verify.json" "$out/" 2>/dev/null || true
say "status $status"
# The log's last lines pass through tee.
sleep 1
exit "$status"
