#!/bin/sh
# What makes a Debian root file system one that GRUB boots from a disk. mmdebstrap calls it with the directory of the root,
# before its packages are installed (essential) and after that (customize).
set -eu
root=$1

# Only what this machine boots with: initial file systems are made several times, under emulation too.
if [ "$MMDEBSTRAP_HOOK" = essential ]; then
  mkdir -p "$root/etc/initramfs-tools/conf.d" "$root/usr/share/initramfs-tools/modules.d"
  echo MODULES=list >"$root/etc/initramfs-tools/conf.d/lab"
  printf '%s\n' virtio_pci virtio_blk ext4 >"$root/usr/share/initramfs-tools/modules.d/lab"
  exit
fi

rm -f "$root"/etc/ssh/ssh_host_*
echo LANG=C.UTF-8 >"$root/etc/default/locale"
echo uninitialized >"$root/etc/machine-id"
# The kernel stays when the package that follows upgrades goes: a test decides when a newer one comes.
for kernel in "$root"/boot/vmlinuz-*; do
  chroot "$root" apt-mark manual "linux-image-${kernel##*/vmlinuz-}" >/dev/null
done
chroot "$root" apt-get -q -y purge linux-image-amd64 >/dev/null

mkdir -p "$root/boot/grub" "$root/root/.ssh"
chmod 700 "$root/root/.ssh"
# shellcheck disable=SC2086 # words
chroot "$root" grub-mkimage -O i386-pc -p '(hd0,msdos1)/boot/grub' -o /boot/grub/core.img $GRUB_MODULES

chroot "$root" systemctl --quiet enable systemd-networkd.service
# They would take dpkg's lock at any moment of a test.
chroot "$root" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer systemd-networkd-wait-online.service

if [ -d "$LAB_CERTIFICATES" ]; then
  cp "$LAB_CERTIFICATES"/*.crt "$root/usr/local/share/ca-certificates/"
  chroot "$root" update-ca-certificates >/dev/null
fi
