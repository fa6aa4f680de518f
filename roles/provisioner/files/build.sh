# shellcheck shell=bash
# Make the boot loader, the agent's ramdisk and the images from packages of Debian and Ubuntu, without a loop device:
#   build.sh WORK OUT     with MIRROR, COMPONENTS, PACKAGES, INDEX, PYTHON and HERE (this directory) in the environment;
#                         UBUNTU_MIRROR is empty where no image ubuntu2404 is wanted
# Prints "made" if it made something. What it makes from the same description is made once.
set -euo pipefail
umask 022
work=$1 out=$2
keyrings=usr/share/keyrings
description=$(cat "$HERE"/{build.sh,agent.txt,baremetal_guard.py,agent-network.py,disk_marks_host.py,named_disks.py,wipe_host.py,agent_network_host.py} <(echo "$MIRROR $COMPONENTS $PACKAGES $UBUNTU_MIRROR") | sha256sum | cut -c1-12)
complete=$out/images.json
# Another's file, or a link, is from a time when this directory was not root's.
if [ -O "$complete" ] && [ ! -L "$complete" ] && grep -q "\"description\": \"$description\"" "$complete" && (cd "$out" && sha256sum --quiet --check SHA256SUMS); then
    exit 0
fi
rm -rf "$work"
mkdir -p "$work" "$out"
build_id=$(date -u +%Y%m%d%H%M)-$description

bootstrap() { # ROOT SUITE PACKAGE...
    local root=$1 suite=$2 pocket
    local -a sources=()
    shift 2
    if [ "$suite" = noble ]; then
        # Debian 12 has no package of Ubuntu's keyring; the ramdisk's root has Debian 13's.
        for pocket in noble noble-updates noble-security; do
            sources+=("deb [signed-by=$work/agent/$keyrings/ubuntu-archive-keyring.gpg] $UBUNTU_MIRROR $pocket main restricted universe")
        done
    else
        sources+=("deb [signed-by=/$keyrings/debian-archive-keyring.gpg] $MIRROR $suite $COMPONENTS")
    fi
    mmdebstrap --quiet --variant=minbase --include="$(IFS=,; echo "$*")" --dpkgopt=force-unsafe-io --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$suite" "$root" "${sources[@]}" >&2
}

# The ESP that Ironic puts on each medium: shim and the CD flavour of GRUB, so that Secure Boot may stay on.
make_esp() {
    local esp=$work/esp.img root=$work/debian13
    truncate -s 8M "$esp"
    mformat -i "$esp" -v ESP ::
    mmd -i "$esp" ::EFI ::EFI/BOOT
    mcopy -i "$esp" "$root/usr/lib/shim/shimx64.efi.signed" ::EFI/BOOT/BOOTX64.EFI
    mcopy -i "$esp" "$root/usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed" ::EFI/BOOT/grubx64.efi
    # The CD flavour looks for a file that Ironic's medium lacks, then reads this one.
    # shellcheck disable=SC2016 # $root is GRUB's
    printf 'search --no-floppy --set=root --file /boot/grub/grub.cfg\nset prefix=($root)/boot/grub\nconfigfile ($root)/boot/grub/grub.cfg\n' >"$work/grub.cfg"
    mcopy -i "$esp" "$work/grub.cfg" ::EFI/BOOT/grub.cfg
}

make_ramdisk() {
    local root=$work/agent guard library
    # hwclock (util-linux-extra) lets the agent switch the server off; without it each deployment waits two minutes.
    bootstrap "$root" trixie linux-image-amd64 systemd systemd-sysv udev dbus iproute2 python3 ca-certificates qemu-utils gdisk parted fdisk \
        dosfstools e2fsprogs xfsprogs btrfs-progs efibootmgr mdadm lvm2 dmidecode pciutils ethtool nvme-cli hdparm smartmontools lshw psmisc \
        bsdextrautils kmod procps util-linux-extra ${UBUNTU_MIRROR:+ubuntu-keyring}
    # The lock is complete, and made for the Python of the ramdisk, not for this one.
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --ignore-requires-python --target "$root/opt/agent" --python-version 3.13 \
        --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --platform any --only-binary=:all: --require-hashes \
        --index-url "$INDEX" -r "$HERE/agent.txt" >&2
    guard=$root/opt/agent/baremetal_guard-1.dist-info
    mkdir -p "$guard" "$root/etc/ironic-python-agent.d"
    install -m 644 "$HERE/baremetal_guard.py" "$root/opt/agent/baremetal_guard.py"
    library=$root/opt/agent/ansible_collections/baremetal/inference/plugins/module_utils/provisioning
    mkdir -p "$library"
    install -m 644 "$HERE/disk_marks_host.py" "$HERE/named_disks.py" "$HERE/wipe_host.py" "$HERE/agent_network_host.py" "$library/"
    printf 'Metadata-Version: 2.1\nName: baremetal-guard\nVersion: 1\n' >"$guard/METADATA"
    printf '[ironic_python_agent.hardware_managers]\nbaremetal_guard = baremetal_guard:BaremetalGuard\n' >"$guard/entry_points.txt"
    : >"$guard/RECORD"
    install -m 755 "$HERE/agent-network.py" "$root/usr/local/sbin/agent-network"
    cat >"$root/etc/systemd/system/agent-network.service" <<-'UNIT'
	[Unit]
	Description=Static network from the boot medium
	DefaultDependencies=no
	After=systemd-udevd.service systemd-udev-trigger.service
	Before=systemd-networkd.service network-pre.target
	Wants=network-pre.target
	[Service]
	Type=oneshot
	RemainAfterExit=yes
	Environment=PYTHONPATH=/opt/agent
	ExecStart=/usr/bin/python3 /usr/local/sbin/agent-network
	[Install]
	WantedBy=multi-user.target
	UNIT
    cat >"$root/etc/systemd/system/ironic-python-agent.service" <<-'UNIT'
	[Unit]
	Description=Ironic's agent
	After=agent-network.service network-online.target
	Wants=network-online.target
	[Service]
	Environment=PYTHONPATH=/opt/agent
	Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
	ExecStart=/usr/bin/python3 /opt/agent/bin/ironic-python-agent --config-dir /etc/ironic-python-agent.d
	Restart=always
	RestartSec=10
	[Install]
	WantedBy=multi-user.target
	UNIT
    ln -sf usr/lib/systemd/systemd "$root/init"
    : >"$root/etc/machine-id"
    echo "$build_id" >"$root/etc/baremetal-agent"
    systemctl --quiet --root="$root" enable systemd-networkd agent-network ironic-python-agent
    cp "$root"/boot/vmlinuz-* "$work/agent.kernel"
    (
        cd "$root"
        find . -xdev \( -path ./boot -o -path './usr/lib/modules/*/kernel/sound' -o -path './usr/lib/modules/*/kernel/drivers/media' \
            -o -path './usr/lib/modules/*/kernel/drivers/gpu' -o -path './usr/lib/modules/*/kernel/drivers/net/wireless' \
            -o -path './var/cache/*' -o -path './var/lib/apt' -o -path './usr/share/locale' -o -path './usr/share/i18n' \
            -o -name __pycache__ -o -path './dev/*' -o -path './proc/*' -o -path './sys/*' -o -path './run/*' -o -path './tmp/*' \) -prune -o -print0 |
            sort -z | cpio -0 -o -H newc --quiet | zstd -q -T0 -9 -f -o "$work/agent.initramfs"
    )
}

# Ubuntu's names of the signed programs differ, and its shimx64.efi.signed is a link out of the root.
signed() { # ROOT NAME
    local file
    for file in "$1/usr/lib/shim/$2".efi{.signed.latest,.signed,}; do
        if [ -f "$file" ]; then
            echo "$file"
            return
        fi
    done
}

make_image() { # NAME VENDOR SUITE PACKAGE...; the signed GRUB looks for its configuration in the directory VENDOR of the ESP
    local name=$1 vendor=$2 root=$work/$1 disk=$work/$1.raw uuid kernel first last
    bootstrap "$root" "${@:3}" initramfs-tools systemd systemd-sysv systemd-resolved udev dbus iproute2 openssh-server python3 \
        python3-apt sudo cloud-init cloud-guest-utils netplan.io ca-certificates curl gnupg e2fsprogs dosfstools gdisk grub-efi-amd64-bin \
        grub-efi-amd64-signed shim-signed efibootmgr pciutils kmod procps less nftables chrony
    # The image has the keyring in its usual place.
    sed -i "s|$work/agent/|/|" "$root/etc/apt/sources.list"
    uuid=$(cat /proc/sys/kernel/random/uuid)
    kernel=$(basename "$root"/boot/vmlinuz-*)
    mkdir -p "$root/etc/baremetal-inference" "$root/boot/efi" "$root/boot/grub" "$root/etc/ssh/sshd_config.d"
    echo "$build_id" >"$root/etc/baremetal-inference/image"
    cat >"$root/etc/cloud/cloud.cfg.d/90-provisioner.cfg" <<-'CONFIG'
	datasource_list: [ConfigDrive, None]
	ssh_deletekeys: true
	ssh_genkeytypes: [ed25519]
	manage_etc_hosts: true
	apt: {preserve_sources_list: true}
	growpart: {mode: auto, devices: ["/"]}
	cloud_init_modules: [seed_random, growpart, resizefs, set_hostname, update_hostname, update_etc_hosts, users_groups, ssh, write_files]
	cloud_config_modules: []
	cloud_final_modules: [final_message]
	CONFIG
    printf 'PermitRootLogin prohibit-password\nPasswordAuthentication no\n' >"$root/etc/ssh/sshd_config.d/50-provisioner.conf"
    printf 'UUID=%s / ext4 errors=remount-ro 0 1\nLABEL=ESP /boot/efi vfat umask=0077,nofail 0 1\n' "$uuid" >"$root/etc/fstab"
    rm -f "$root"/etc/ssh/ssh_host_*
    : >"$root/etc/machine-id"
    echo localhost >"$root/etc/hostname"
    systemctl --quiet --root="$root" enable systemd-networkd systemd-resolved ssh
    # Ubuntu's socket would start sshd for the first connection, before cloud-init has written the host key.
    systemctl --quiet --root="$root" disable ssh.socket
    cat >"$root/etc/default/grub" <<-CONFIG
	GRUB_DEFAULT=0
	GRUB_TIMEOUT=1
	GRUB_DISTRIBUTOR=$vendor
	GRUB_CMDLINE_LINUX="console=tty0 console=ttyS0,115200"
	GRUB_TERMINAL="console serial"
	CONFIG
    cat >"$root/boot/grub/grub.cfg" <<-CONFIG
	set timeout=1
	serial --unit=0 --speed=115200
	terminal_output console serial
	menuentry "$name" {
	  linux /boot/$kernel root=UUID=$uuid ro console=tty0 console=ttyS0,115200
	  initrd /boot/initrd.img-${kernel#vmlinuz-}
	}
	CONFIG
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    truncate -s "$(($(du -sm "$root" | cut -f1) * 13 / 10 + 500))M" "$disk"
    # The root partition is the last one, so that it can grow.
    sgdisk --new 1:1M:+200M --typecode 1:EF00 --change-name 1:ESP --new 2:0:0 --typecode 2:8304 --change-name 2:root "$disk" >&2
    first=$(sgdisk -i 2 "$disk" | sed -n 's/^First sector: \([0-9]*\).*/\1/p')
    last=$(sgdisk -i 2 "$disk" | sed -n 's/^Last sector: \([0-9]*\).*/\1/p')
    mke2fs -q -F -t ext4 -U "$uuid" -L root -O ^metadata_csum_seed,^orphan_file -E "offset=$((first * 512))" -d "$root" -b 4096 \
        "$disk" $(((last - first + 1) / 8))
    mformat -i "$disk@@1M" -F -v ESP -T $((200 * 2048)) -h 255 -s 63 ::
    mmd -i "$disk@@1M" ::EFI ::EFI/BOOT "::EFI/$vendor"
    local grub=$root/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed
    mcopy -i "$disk@@1M" "$(signed "$root" shimx64)" ::EFI/BOOT/BOOTX64.EFI
    mcopy -i "$disk@@1M" "$(signed "$root" fbx64)" ::EFI/BOOT/fbx64.efi
    mcopy -i "$disk@@1M" "$(signed "$root" mmx64)" ::EFI/BOOT/mmx64.efi
    mcopy -i "$disk@@1M" "$(signed "$root" shimx64)" "::EFI/$vendor/shimx64.efi"
    mcopy -i "$disk@@1M" "$(signed "$root" mmx64)" "::EFI/$vendor/mmx64.efi"
    mcopy -i "$disk@@1M" "$grub" "::EFI/$vendor/grubx64.efi"
    # The agent names the firmware's entry by this file.
    (printf '\xff\xfe' && echo "shimx64.efi,$vendor,,This is the boot entry for $vendor" | iconv -t UTF-16LE) >"$work/BOOTX64.CSV"
    mcopy -i "$disk@@1M" "$work/BOOTX64.CSV" "::EFI/$vendor/BOOTX64.CSV"
    # shellcheck disable=SC2016 # $root and $prefix are GRUB's
    printf 'search.fs_uuid %s root\nset prefix=($root)/boot/grub\nconfigfile $prefix/grub.cfg\n' "$uuid" >"$work/esp-grub.cfg"
    mcopy -i "$disk@@1M" "$work/esp-grub.cfg" "::EFI/$vendor/grub.cfg"
}

images=(debian13)
make_ramdisk
# shellcheck disable=SC2086 # a list of packages
make_image debian13 debian trixie linux-image-amd64 $PACKAGES
if [ -n "$UBUNTU_MIRROR" ]; then
    images+=(ubuntu2404)
    make_image ubuntu2404 ubuntu noble linux-image-generic
fi
make_esp
rm -f "$complete"
files=(agent.kernel agent.initramfs esp.img "${images[@]/%/.raw}")
(cd "$work" && sha256sum "${files[@]}" >SHA256SUMS)
{
    printf '{"description": "%s", "images": {' "$description"
    separator=
    for image in "${images[@]}"; do
        printf '%s"%s": {"build_id": "%s", "sha256": "%s"}' "$separator" "$image" "$build_id" "$(sed -n "s/  $image.raw$//p" "$work/SHA256SUMS")"
        separator=', '
    done
    printf '}}\n'
} >"$work/images.json"
# images.json last: what has this file is complete.
for file in "${files[@]}" SHA256SUMS images.json; do
    rm -rf "$out/.$file.partial"
    install -m 644 -T "$work/$file" "$out/.$file.partial"
    mv -T "$out/.$file.partial" "$out/$file"
done
rm -rf "$work"
echo made
