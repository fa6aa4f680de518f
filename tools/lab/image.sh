#!/bin/sh
# What makes a Debian root file system a lab host. mmdebstrap calls it with the directory of the new root.
set -eu
root=$1

# Keys are made per lab and host (tools/lab/hosts.py), so that no two hosts share one.
rm -f "$root"/etc/ssh/ssh_host_*
cat >"$root/etc/ssh/sshd_config.d/lab.conf" <<'END'
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
END
mkdir -p "$root/var/log/journal"
# The PCI tree of a host without accelerators; the one in /sys is the controller's.
mkdir -p "$root/usr/share/lab/sys/bus/pci/devices"
echo LANG=C.UTF-8 >"$root/etc/default/locale"

# Ansible sends a module as an archive of sources, which Python compiles again at each call: two fifths of what a call costs.
# The lab's hosts keep what they have compiled, until they are restarted.
packages=$root/usr/lib/python3/dist-packages
echo 'import lab_compiled' >"$packages/lab_compiled.pth"
cat >"$packages/lab_compiled.py" <<'END'
import _imp
import marshal
import os
import sys
import zipimport

PLACE = "/run/lab-compiled/" + sys.implementation.cache_tag
compile_source = zipimport._compile_source


def compile_once(pathname, source):
    place = "%s/%s-%d" % (PLACE, _imp.source_hash(0, source).hex(), len(source))
    try:
        with open(place, "rb") as file:
            return marshal.load(file)
    except (OSError, EOFError, TypeError, ValueError):
        code = compile_source(pathname, source)
    try:
        partial = "%s.%d" % (place, os.getpid())
        with open(partial, "wb") as file:
            marshal.dump(code, file)
        os.rename(partial, place)
    except OSError:
        pass
    return code


zipimport._compile_source = compile_once
END
# Root's alone: what lies there is run as it is, by the next call of a module. Other users compile.
echo 'd /run/lab-compiled 0700' >"$root/etc/tmpfiles.d/lab.conf"
for version in "$root"/usr/lib/python3.*; do
  tag=$(basename "$version" | tr -d 'a-z.')
  echo "d /run/lab-compiled/cpython-$tag 0700" >>"$root/etc/tmpfiles.d/lab.conf"
done

# podman asks for a limit of tasks, which this cgroup lacks the controller for, and for limits above the lab's own.
mkdir -p "$root/etc/containers/containers.conf.d"
cat >"$root/etc/containers/containers.conf.d/lab.conf" <<'END'
[containers]
pids_limit = 0
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
END

mask() {
  chroot "$root" systemctl --quiet mask "$@"
}
# No console to log in at.
mask getty@tty1.service console-getty.service
# They would reach through to the controller, whose kernel the host shares.
mask systemd-sysctl.service systemd-modules-load.service systemd-udev-trigger.service systemd-binfmt.service
# They would take dpkg's lock at any moment of a test.
mask apt-daily.timer apt-daily-upgrade.timer

# A site's own certificate authorities, if tools/lab/images.py found some.
if [ -d "$LAB_CERTIFICATES" ]; then
  cp "$LAB_CERTIFICATES"/*.crt "$root/usr/local/share/ca-certificates/"
  chroot "$root" update-ca-certificates >/dev/null
fi
