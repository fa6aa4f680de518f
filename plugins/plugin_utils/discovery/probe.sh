# shellcheck shell=sh
# Print the hardware of a host: PCI functions, processor, memory, drivers. plugin_utils/discovery/probe.py adds a call of `probe`
# and sends everything to a shell on the host; plugin_utils/discovery/observations.py reads the output. The result must equal
# that of module accelerator_info on the same host. POSIX sh; the only programs that it starts are sed and uname.
# No function runs before the last line has arrived, so a truncated script prints nothing.

tab='	'
newline='
'
IFS=" $tab$newline"
lines='' count=0

say() {
  lines="$lines$*$newline"
  count=$((count + 1))
}

finish() {
  printf '%s\n%s%s %s\n' 'accelerator-probe 1 begin' "$lines" 'accelerator-probe 1 end' "$count"
}

give_up() {
  say error "$*"
  finish
  exit 1
}

# Set value to the first line of a file without blanks around it, or to nothing if the file cannot be read.
first_line() {
  value=
  { read -r value <"$1"; } 2>/dev/null
}

# Set value to the first four hex digits of a file with a number like 0x030200, or to nothing for other content.
hex_digits() {
  first_line "$1"
  case $value in
    0x[0-9a-f][0-9a-f][0-9a-f][0-9a-f]*)
      value=${value#0x}
      value=${value%"${value#????}"}
      ;;
    *) value= ;;
  esac
}

# Set value to nothing unless it is a whole number.
only_number() {
  case $value in
    *[!0-9]*) value= ;;
  esac
}

# Print the PCI functions of the vendors in $1. $1 is a list of vendor, vendor:device and vendor/class with blanks around each.
# Skip virtual functions, which are not separate chips, and functions that every server has: storage, network, sound, bridges,
# buses, counters. An Intel board has hundreds of those. vendor:device and vendor/class name exceptions.
pci_functions() {
  devices=$sysfs/bus/pci/devices words=$1
  [ -d "$sysfs/bus" ] || give_up "$sysfs: no sysfs there, it has no directory 'bus'; mount sysfs or correct sysfs_root"
  [ -e "$devices" ] || return 0
  { [ -d "$devices" ] && [ -r "$devices" ] && [ -x "$devices" ]; } || give_up "$devices: cannot be listed"
  for function in "$devices"/*; do
    hex_digits "$function/vendor"
    vendor=$value
    case $words in
      *" ${vendor:-none} "*) pci_function ;;
    esac
  done
}

pci_function() {
  hex_digits "$function/device"
  device=$value
  hex_digits "$function/class"
  class=$value
  [ "$device" ] && [ "$class" ] && [ ! -e "$function/physfn" ] || return 0
  case $class in
    01?? | 02?? | 04?? | 0600 | 0601 | 0604 | 07?? | 08?? | 0c?? | 1101)
      case $words in
        *" $vendor:$device "* | *" $vendor/$class "*) ;;
        *) return 0 ;;
      esac
      ;;
  esac
  hex_digits "$function/subsystem_vendor"
  board=${value:--}
  hex_digits "$function/subsystem_device"
  board="$board ${value:--}"
  first_line "$function/numa_node"
  only_number
  node=${value:--}
  unbound=
  case $vendor/$class in
    10de/03?? | 10de/12??) is_unbound nvidia ;;
    1002/03?? | 1002/12??) is_unbound amdgpu ;;
  esac
  first_line "$function/mem_info_vram_total"
  only_number
  say "pci ${function##*/} $vendor $device $class $board $node$unbound${value:+ bytes $value}"
}

# Set unbound where a driver is loaded and does not drive the function.
is_unbound() {
  driver=$sysfs/bus/pci/drivers/$1
  if [ -d "$driver" ] && [ ! -e "$driver/${function##*/}" ]; then unbound=' unbound'; fi
}

drivers() {
  first_line "$sysfs/module/nvidia/version"
  if [ "$value" ]; then say nvidia "$value"; else matching_lines nvrm 'NVRM version:*' "$procfs/driver/nvidia/version"; fi
  first_line "$sysfs/module/amdgpu/version"
  [ ! "$value" ] || say amdgpu "$value"
  for file in "$sysfs"/class/drm/card*/device/fw_version/mec_fw_version; do
    first_line "$file"
    [ ! "$value" ] || say mec "$value"
  done
  for file in "$sysfs"/bus/pci/devices/*/current_compute_partition; do
    first_line "$file"
    mode=$value
    first_line "${file%/*}/current_memory_partition"
    [ ! "$mode$value" ] || say partition "$mode $value"
  done
  matching_lines ascend '[Vv][Ee][Rr][Ss][Ii][Oo][Nn]*=*' "$ascend"
}

# Print the lines of a file that match a shell pattern.
matching_lines() {
  [ -f "$3" ] && [ -r "$3" ] || return 0
  while read -r line || [ "$line" ]; do
    # shellcheck disable=SC2254  # it is a pattern
    case $line in
      $2) say "$1" "$line" ;;
    esac
  done <"$3"
}

# Print all lines of the first processor, and only count the others: with hundreds of them /proc/cpuinfo has a megabyte.
processors() {
  { [ -f "$procfs/cpuinfo" ] && [ -r "$procfs/cpuinfo" ]; } ||
    give_up "$procfs/cpuinfo: cannot be read; is procfs mounted?"
  block='' length=0 found=
  while IFS= read -r line || [ "$line" ]; do
    if [ "$line" ]; then
      block="${block}cpuinfo $line$newline"
      length=$((length + 1))
      ! is_processor "$line" || found=yes
    elif [ "$found" ]; then
      break
    else
      block='' length=0
    fi
  done <"$procfs/cpuinfo"
  [ ! "$found" ] || lines=$lines$block count=$((count + length))
  blanks="[ $tab]*"
  found=$(sed -n -e "s/^processor$blanks:.*/thread/p" -e "s/^physical id$blanks:$blanks/socket=/p" \
    -e "s/^core id$blanks:$blanks/core=/p" "$procfs/cpuinfo") || give_up "$procfs/cpuinfo: sed cannot read it"
  threads=0 cores=0 known=' ' socket='' core=
  for word in $found thread; do
    case $word in
      socket=*) socket=${word#socket=} ;;
      core=*) core=${word#core=} ;;
      *) next_thread ;;
    esac
  done
  say threads $((threads - 1))
  say cores "$cores"
}

is_processor() {
  case $1 in
    processor*:*)
      set -- "${1#processor}"
      set -- "${1%%:*}"
      case $1 in
        *[!" $tab"]*) return 1 ;;
      esac
      ;;
    *) return 1 ;;
  esac
}

# Count the next thread, and the core of the previous thread if that core is new.
next_thread() {
  threads=$((threads + 1))
  case $known in
    *" $socket/$core "*) ;;
    *) [ ! "$core" ] || cores=$((cores + 1)) known="$known$socket/$core " ;;
  esac
  socket='' core=
}

memory() {
  { [ -f "$procfs/meminfo" ] && [ -r "$procfs/meminfo" ]; } ||
    give_up "$procfs/meminfo: cannot be read; is procfs mounted?"
  while IFS= read -r line || [ "$line" ]; do
    case $line in
      MemTotal:*)
        say meminfo "$line"
        break
        ;;
    esac
  done <"$procfs/meminfo"
  nodes=0
  for file in "$sysfs"/devices/system/node/node[0-9]*; do
    value=${file##*/node}
    only_number
    if [ "$value" ] && [ -e "$file" ]; then nodes=$((nodes + 1)); fi
  done
  [ "$nodes" -gt 0 ] || nodes=1
  say nodes "$nodes"
}

# Arguments: the paths of sysfs and procfs, the file that describes Ascend's driver, the list for pci_functions.
probe() {
  LC_ALL=C
  export LC_ALL
  sysfs=$1 procfs=$2 ascend=$3
  shift 3
  pci_functions " $* "
  drivers
  processors
  memory
  say machine "$(uname -m)"
  finish
}
