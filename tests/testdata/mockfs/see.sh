# What bash sees of the staged GPU $1, and of the host's device $2 if there is one.
set -eu

devices=/sys/bus/pci/devices
same() { [ "$1" = "$2" ] || { echo "got '$1', want '$2'"; exit 1; }; }

same "$(<$devices/"$1"/vendor)" 0x10de
same "$(cat <$devices/"$1"/vendor)" 0x10de
[ -L "$devices/$1" ] && [ -d "$devices/$1" ] && [ -f "$devices/$1/vendor" ] && [ ! -e "$devices/$1/missing" ]
same "$(echo $devices/7a57:3b*)" "$devices/$1"
same "$(echo /sys/devices/pci7a57*)" /sys/devices/pci7a57:3a
[ -z "$2" ] || same "$(printf '%s\n' $devices/* | grep -c "/$2$")" 1
cd $devices
same "$PWD" $devices
same "$(echo "$1"*)" "$1"
cd "$1/driver"
same "$(pwd -P)" /sys/bus/pci/drivers/nvidia
cd -P "$devices/$1/.."
same "$(ls -d "$1")" "$1"
cd /
same "$(cat "sys/bus/pci/devices/$1/vendor")" 0x10de
same "$(readlink -f "$devices/$1/driver")" /sys/bus/pci/drivers/nvidia
same "$(bash -c "cd $devices/$1; cat vendor")" 0x10de
if (: >$devices/new) 2>/dev/null; then echo "the tree was changed"; exit 1; fi
