#!/usr/bin/env bash
# Install what the demo and the tests need: Debian packages, and .venv from requirements/dev.txt.
# Existing packages stay unchanged. With nothing to do, this takes a fraction of a second.
#   tools/bootstrap.sh           both, as root
#   tools/bootstrap.sh python    only .venv, as any user: enough for `make fast` and `make unit`
set -euo pipefail
cd "$(dirname "$0")/.."

readonly REQUIREMENTS=requirements/dev.txt VENV=.venv
# Needed by the newest ansible-core that runs on Debian 12.
readonly OLDEST_PYTHON="3, 11"

# package -> its purpose
declare -rA PACKAGES=(
  [ca-certificates]="HTTPS"
  [chromium]="tests of the fleet's page"
  [chromium-driver]="driving that browser"
  [curl]="tests of the gateway"
  [createrepo-c]="stand-ins of repositories for dnf"
  [docker-registry]="tests of the mirror"
  [e2fsprogs]="the virtual machine's disk"
  [gnupg]="tests of signatures"
  [haproxy]="tests of the gateway"
  [openssl]="tests of the gateway's certificates"
  [git]="the list of files for ansible-test"
  [gdisk]="tests of provision.yml"
  [iproute2]="finding free subnets"
  [iptables]="the lab's network"
  [keepalived]="tests of the gateways' shared address"
  [make]="make demo, make test"
  [mmdebstrap]="building the lab hosts' images"
  [debian-archive-keyring]="trusting the packages in these images"
  [netavark]="the lab's network"
  [aardvark-dns]="host names in the lab's network"
  [nginx-light]="tests of the mirror"
  [nftables]="tests of the firewall between hosts"
  [openssh-client]="reaching the lab hosts"
  [podman]="running the lab hosts"
  [prometheus]="promtool, for the tests of alerts and dashboards"
  [python3-venv]="the Python environment"
  [qemu-system-x86]="the virtual machine"
  [rpm]="stand-ins of packages for dnf"
  [rsync]="copying the collection into a test's tree"
  [runc]="running the lab hosts where cgroups are mixed"
  [shellcheck]="make lint"
  [xorriso]="tests of provision.yml"
)

main() {
  [[ ${1:-} == python ]] || install_packages
  local python
  python=$(choose_python)
  make_environment "$python"
}

install_packages() {
  local package
  local -a absent=()
  mapfile -t absent < <(absent_packages)
  ((${#absent[@]})) || return 0
  echo "Debian packages that are missing here:"
  for package in "${absent[@]}"; do printf '  %-24s %s\n' "$package" "${PACKAGES[$package]}"; done
  if ((EUID)); then
    echo "Installing them needs root. Run: sudo $0" >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq -o Acquire::Retries=3
  apt-get install -y -qq --no-install-recommends -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "${absent[@]}" | sed -un 's/^Setting up/  &/p'
  # Debian starts the server, on all addresses. The tests need only promtool.
  if [[ " ${absent[*]} " == *" prometheus "* && -d /run/systemd/system ]]; then
    systemctl --quiet disable --now prometheus.service
  fi
}

absent_packages() {
  command -v dpkg-query >/dev/null || {
    echo "This needs Debian 12 or later. Elsewhere, install by hand: ${!PACKAGES[*]}" >&2
    return
  }
  # dpkg-query fails if one package is unknown, but it still lists the others.
  { dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${!PACKAGES[@]}" 2>/dev/null || true; } |
    sed -n 's/^installed //p' | sort | comm -13 - <(printf '%s\n' "${!PACKAGES[@]}" | sort)
}

# The system's Python comes first, because python3-venv belongs to it.
choose_python() {
  local candidate
  for candidate in /usr/bin/python3 python3; do
    if "$candidate" -c "import sys; sys.exit(sys.version_info < ($OLDEST_PYTHON))" 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  echo "No Python ${OLDEST_PYTHON/, /.} or later here (Debian 12 has it as /usr/bin/python3)." >&2
  exit 1
}

make_environment() {
  local python=$1 stamp
  stamp="$(readlink -f "$python") $(sha256sum <"$REQUIREMENTS")"
  [[ -x $VENV/bin/python && -e $VENV/.complete && $(<"$VENV/.complete") == "$stamp" ]] && return
  echo "Python packages into $VENV ($(grep -c == "$REQUIREMENTS") of them, about a minute):"
  rm -rf "$VENV"
  "$python" -m venv "$VENV"
  "$VENV/bin/pip" install --disable-pip-version-check --no-input --progress-bar off -r "$REQUIREMENTS" |
    sed -un 's/^Collecting \([^ ]*\).*/  \1/p; s/^Installing collected.*/  installing them/p'
  # This file is written last: an environment without it is incomplete and is built again.
  echo "$stamp" >"$VENV/.complete"
}

main "$@"
