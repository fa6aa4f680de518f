#!/usr/bin/env bash
# Run a command with the haproxy of Debian 13 (3.0) in place of Debian 12's (2.6): tests/haproxy13.sh .venv/bin/pytest tests/hostile
# It is downloaded once (48 MB unpacked). HAProxy starts itself again at a reload, by the name of the program below.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$PWD/.cache/haproxy13

if [[ ! -d $place ]]; then
  rm -rf "$place.partial"
  mkdir -p "$place.partial"
  # With apt's settings and from the sources that the lab's images have.
  mapfile -t words < <(.venv/bin/python -c 'from tools.lab.images import read_recipe
recipe = read_recipe("trixie"); print(*(each for each in recipe.options if "aptopt" in each), "trixie", "'"$place.partial/root"'", *recipe.sources, sep="\n")')
  mmdebstrap --quiet --mode=chrootless --variant=extract --include=haproxy "${words[@]}" >&2
  cat >"$place.partial/haproxy" <<END
#!/bin/sh
exec $place/root/usr/lib64/ld-linux-x86-64.so.2 --argv0 "\$0" --library-path $place/root/usr/lib/x86_64-linux-gnu \\
  $place/root/usr/sbin/haproxy "\$@"
END
  chmod +x "$place.partial/haproxy"
  mv "$place.partial" "$place"
fi
export PATH=$place:$PATH
[[ $(haproxy -v) == *"version 3."* ]]
exec "$@"
