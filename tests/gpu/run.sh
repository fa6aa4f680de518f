#!/usr/bin/env bash
# Bring a GPU machine without a network from a bare Debian 13 to a chat:  run.sh PARTS OUT [SCRIPT]
# SCRIPT runs inside: inside.sh, big.sh, or two.sh on a machine with two chips. PARTS has the parts of make_bundle.py's bundle; OUT
# gets run.log, verify.json and what else explains a failure. The script finds in LEFT the seconds that it has.
# Needs root, Python 3.12 with PyTorch at /opt/torch/.venv, CUDA's driver below /usr/local/nvidia, and 15 GB of disk.
# Debian boots with systemd in namespaces of its own, on the machine's kernel, driver and network.
set -euo pipefail
parts=$1 out=$2 script=${3:-inside.sh}
work=/srv/gpu-test root=/srv/gpu-test/root
# In all, below the 600 s that one command may take.
limit=${LIMIT:-560}
mkdir -p "$out" "$work"
exec > >(tee "$out/run.log") 2>&1
say() { printf '%s [%3ds] %s\n' "$(date -u +%H:%M:%S)" "$SECONDS" "$*"; }

say "machine"
uname -r
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || /usr/local/nvidia/bin/nvidia-smi -L
df -h /srv | tail -1

say "unpack"
cat "$parts"/part-* | tar -x -C "$work" -f -
mkdir -p "$root"
tar -xJf "$work/rootfs.tar.xz" -C "$root" --exclude='./dev/*'
# PyTorch as it is in an environment: with bytecode, and without packages that no lock has.
here=$(cd "$(dirname "$0")" && pwd)
/usr/bin/python3.12 "$here/machine_torch.py" /opt/torch/.venv/lib/python3.12/site-packages \
  "$here/../../catalog/releases/requirements/0.25.1-cuda-cp312-x86_64.txt" "$root/opt/machine-torch" > "$work/torch.log" 2>&1 &
linked=$!
tar -xJf "$work/weights.tar.xz" -C "$work"
chmod -R a+rX "$work"

say "prepare the root file system"
echo gpu-test > "$root/etc/hostname"
echo '127.0.0.1 localhost gpu-test' > "$root/etc/hosts"
python3 -c 'import uuid; print(uuid.uuid4().hex)' > "$root/etc/machine-id"
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

cat > "$work/boot.sh" <<'BOOT'
set -e
root=$1 work=$2
mount --make-rprivate /
mount --bind "$root" "$root"
bind() { [ -e "$1" ] || return 0; mkdir -p "$root$2"; mount --bind "$1" "$root$2"; }
bind "$work" /carried
for each in /opt/torch /usr/local/nvidia /usr/lib/python3.12 /opt/nvidia; do bind "$each" "$each"; done
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
for node in null zero full random urandom tty kmsg; do cp -a "/dev/$node" "$root/dev/" || true; done
cp -a /dev/nvidia* "$root/dev/"
hostname gpu-test
cd "$root"
exec env -i container=lxc PATH=/usr/sbin:/usr/bin chroot "$root" /lib/systemd/systemd --log-target=journal
BOOT

wait "$linked" || { cat "$work/torch.log"; say "FAILED: PyTorch cannot be linked"; exit 1; }
cat "$work/torch.log"
[ -e "$root/opt/machine-torch/torch" ] || { say "FAILED: no PyTorch"; exit 1; }

say "boot"
group=/sys/fs/cgroup/gpu-test
mkdir -p "$group"
# shellcheck disable=SC2016  # expanded by the inner shell
setsid bash -c 'echo $$ > "$0/cgroup.procs"; exec unshare -m -p -f -i -u -C bash "$1" "$2" "$3"' \
  "$group" "$work/boot.sh" "$root" "$work" </dev/null > "$work/boot.log" 2>&1 &
leader=
for _ in $(seq 30); do
  sleep 1
  leader=$(pgrep -f '^/lib/systemd/systemd --log-target=journal' | tail -1 || true)
  [ -n "$leader" ] && [ -S "/proc/$leader/root/run/systemd/private" ] && break
done
cat "$work/boot.log"
[ -n "$leader" ] || { say "FAILED: systemd did not start"; exit 1; }
enter=(nsenter -t "$leader" -m -u -i -p -C -r -w env -i HOME=/root LANG=C.UTF-8 TERM=dumb
  NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
"${enter[@]}" ldconfig
"${enter[@]}" systemctl is-system-running --wait || "${enter[@]}" systemctl --failed --no-legend

say "run inside"
status=0
timeout --foreground "$((limit - SECONDS))" "${enter[@]}" LEFT="$((limit - SECONDS - 10))" bash "/carried/$script" || status=$?
[ "$status" != 124 ] || say "FAILED: not done after $limit s"
# What explains a failure, whatever it is.
timeout 20 "${enter[@]}" journalctl -u 'vllm@*' --no-pager -o short-monotonic | gzip > "$out/journal.txt.gz" || true
tar -czf "$out/details.tar.gz" -C "$work/result" . || true
cp "$work/result/verify.json" "$out/" 2>/dev/null || true
say "status $status"
# The log's last lines pass through tee.
sleep 1
exit "$status"
