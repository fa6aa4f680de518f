#!/usr/bin/env bash
# Stands in for Huawei's Ascend-docker-runtime_VERSION_linux-ARCHITECTURE.run. What it asks, checks, writes and answers
# is that of the vendor's installer of 2026-08; its runtime is the distribution's runc, told of the chips in a variable.
# The version is that in the file's name. STANDIN_* in the environment make it fail as the vendor's would.
umask 027
version=$(basename "$0" | sed -E 's/^Ascend-docker-runtime_v?(.*)_linux-.*$/\1/')
home=/usr/local/Ascend/Ascend-Docker-Runtime
config=/etc/docker/daemon.json
logs=/var/log/ascend-docker-runtime
action=""

log() {
    echo "$1 $2"
    echo "$1 [$(date +'%Y/%m/%d %H:%M:%S')] [uid: ${UID}] [localhost] [ascend-docker-runtime] $2" >>"${logs}/installer.log"
}

fail() {
    log "[ERROR]" "$1"
    exit 1
}

# Every directory above a file must be root's own, and written to by root alone.
check_path() {
    local path=$1
    while [[ ! -e ${path} ]]; do path=$(dirname "${path}"); done
    while [[ ${path} != / ]]; do
        [[ -L ${path} ]] && { echo "[ERROR] ${path} is soft link"; return 1; }
        [[ $(stat -c %u:%g "${path}") == 0:0 ]] || { echo "[ERROR] user or group of ${path} is not root"; return 1; }
        [[ $(stat -c %A "${path}" | cut -c6,9) == *w* ]] && { echo "[ERROR] group or other of ${path} has write permission"; return 1; }
        path=$(dirname "${path}")
    done
}

accept() {
    echo "Do you accept the EULA to install Ascend-docker-runtime?[Y/N]"
    # The vendor's asks for ever where nobody answers.
    while read -r answer || fail "nobody answers, and the vendor's would ask for ever"; do
        case ${answer} in
        [Yy]) log "[INFO]" "user accepted EULA"; return ;;
        [Nn]) log "[INFO]" "install cancelled, user declined EULA"; exit 0 ;;
        esac
    done
}

mkdir -p "${logs}"
[[ ${UID} == 0 ]] || fail "failed, please run with root permission"
for word in "$@"; do
    case ${word} in
    --install) action=install ;;
    --config-file-path=*)
        config=${word#*=}
        [[ -e ${config} ]] || fail "failed, file '${config}' does not exist."
        ;;
    *) fail "failed, unsupported parameters: ${word}" ;;
    esac
done
[[ ${action} == install ]] || { echo "Usage: $0 [options]"; exit 0; }

accept
echo "[INFO] installing ascend-docker-runtime"
[[ $(basename "$0") == *$(uname -m)* ]] || fail "install failed, run package and os not matched in arch"
check_path "${home}" || fail "install failed, ${home} is invalid"
mkdir -p "${home}/script" /etc/ascend-docker-runtime.d
cat >"${home}/ascend-docker-runtime.new" <<'RUNTIME'
#!/bin/sh
exec runc "$@"
RUNTIME
chmod 550 "${home}/ascend-docker-runtime.new"
mv -f "${home}/ascend-docker-runtime.new" "${home}/ascend-docker-runtime"
echo /usr/local/Ascend/driver/lib64 >/etc/ascend-docker-runtime.d/base.list
[[ ! -e /run/standin-cut-off ]] || kill -9 $$
[[ ! -e /run/standin-fails ]] || fail "install failed, './ascend-docker-plugin-install-helper add ${config}' return non-zero"
check_path "${config}" || fail "install failed, ${config} is invalid"
/usr/bin/python3 - "${config}" "${home}/ascend-docker-runtime" <<'HELPER' || fail "install failed, helper returned non-zero"
import json, os, sys

path, runtime = sys.argv[1:]
with open(path) as file:
    daemon = json.load(file)
daemon.setdefault("runtimes", {}).setdefault("ascend", {}).update(path=runtime, runtimeArgs=[])
daemon["default-runtime"] = "ascend"
with open(path + ".new", "w") as file:
    json.dump(daemon, file, indent=8)
os.replace(path + ".new", path)
HELPER
chmod 600 "${config}"
log "[INFO]" "${config} modify success"
printf '%s\n' "version=v${version}" "arch=$(uname -m)" os=linux "path=${home}" "config-file-path=${config}" \
    >"${home}/ascend_docker_runtime_install.info"
echo "[INFO] The version of ascend-docker-runtime is: ${version}"
log "[INFO]" "ascend-docker-runtime install success"
