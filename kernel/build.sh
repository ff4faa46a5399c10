#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# build.sh OUT builds the modules in OUT/RELEASE, RELEASE being the kernel's as uname -r shows it. make calls it.
#
#   KDIR=FOLDER   the kernel's headers; without it KERNEL decides
#   KERNEL=6.12   the newest kernel of that series of Debian's, whose headers are fetched; without it the running kernel
#   MODULES       the modules to build; both without it
#   STRICT=1      warnings are errors, as they are for KERNEL
#   MODULE_CC     the compiler, in place of the one that built the kernel
set -euo pipefail
cd "$(dirname "$0")"
out=$1

die() { echo "kernel: $*" >&2; exit 1; }

# package RELEASE says how to get the headers of that kernel.
package() {
	local ids=
	[ ! -r /etc/os-release ] || ids=" $(. /etc/os-release; echo "$ID ${ID_LIKE:-}") "
	case $ids in
	*' debian '* | *' ubuntu '*) echo "install linux-headers-$1: apt-get install linux-headers-$1" ;;
	*' fedora '* | *' rhel '*) echo "install kernel-devel-$1: dnf install kernel-devel-$1" ;;
	*' suse '* | *' opensuse '*) echo "install kernel-devel: zypper install kernel-devel" ;;
	*' arch '*) echo "install linux-headers: pacman -S linux-headers" ;;
	*) echo "install your distribution's headers of it, on Debian linux-headers-$1" ;;
	esac
}

running=$(uname -r)
wanted= strict=
if [ -n "${KDIR:-}" ]; then
	kdir=$KDIR
	# What a path says about the kernel that was meant.
	case $kdir in
	/lib/modules/*/build | /usr/lib/modules/*/build) wanted=${kdir%/build} wanted=${wanted##*/} ;;
	*/linux-headers-*) wanted=${kdir%/} wanted=${wanted##*/linux-headers-} ;;
	esac
elif [ -n "${KERNEL:-}" ]; then
	kdir=$(cd .. && go run ./tests/fetch -kernel-headers "$KERNEL")
	strict=1
else
	kdir=/lib/modules/$running/build wanted=$running
fi
# One folder has one name, or make compiles everything again for the other.
[ ! -d "$kdir" ] || kdir=$(realpath "$kdir")
otherwise="; or build for a kernel of Debian's that is fetched: make -C kernel KERNEL=6.1"

[ -e "$kdir/Makefile" ] || die "there are no headers${wanted:+ of Linux $wanted} in $kdir: $(package "${wanted:-$running}")$otherwise"
release=$(sed -nE 's/^#define UTS_RELEASE "(.*)"$/\1/p' "$kdir/include/generated/utsrelease.h" 2>/dev/null) ||
	die "the headers in $kdir are not prepared for building modules: $(package "${wanted:-$running}"), or run make modules_prepare in a kernel's source$otherwise"
[ -z "$wanted" ] || [ "$wanted" = "$release" ] ||
	die "the headers in $kdir are those of Linux $release, and not of $wanted: a module that they build is refused (invalid module format); $(package "$wanted")$otherwise"
# Debian has these tools in a package of their own.
for tool in scripts/basic/fixdep scripts/mod/modpost; do
	[ -x "$kdir/$tool" ] ||
		die "$kdir lacks $tool, which builds modules and comes with what the headers depend on: $(package "$release")$otherwise"
done

# The compiler with which the kernel was built, if it is here: a module should have no other.
major=$(sed -nE 's/^CONFIG_GCC_VERSION=([0-9]+)[0-9]{4}$/\1/p' "$kdir/include/config/auto.conf" "$kdir/.config" 2>/dev/null | head -n 1)
cc=${MODULE_CC:-}
[ -n "$cc" ] || for cc in "gcc-$major" gcc-12 gcc; do ! command -v "$cc" >/dev/null || break; done
command -v "${cc%% *}" >/dev/null || die "there is no $cc: install a C compiler (on Debian: apt-get install gcc)"
command -v make >/dev/null || die "there is no make: install it (on Debian: apt-get install make)"

# BTF takes pahole of the release that built the kernel, and nothing here uses it.
settings=(CC="$cc" "MODULES=${MODULES:-}" CONFIG_DEBUG_INFO_BTF_MODULES=)
# A kernel that a newer gcc built may want an option that this gcc does not know. It aligns functions without it as well.
$cc -fmin-function-alignment=16 -E -x c /dev/null >/dev/null 2>&1 || settings+=(CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=)
# For kernels that are tested, nothing may warn: neither the compiler nor sparse. Headers that lack the script by which a
# kernel looks at sparse cannot have it.
if [ -n "$strict" ] || [ -n "${STRICT:-}" ]; then
	settings+=(STRICT=1)
	common=$(sed -nE 's/^include (.*)\/Makefile$/\1/p' "$kdir/Makefile")
	if command -v sparse >/dev/null && ! grep -q checker-valid.sh "${common:-$kdir}/Makefile"; then
		settings+=(C=1 CHECK="sparse -Wsparse-error")
	fi
fi

# One build at a time in a folder; whoever comes second finds everything done.
build=$out/$release
mkdir -p "$build"
exec 9>"$build/.lock"
flock 9
cp -ru Kbuild compat.h uapi logic fakegpu vgpu "$build"/
echo "building ${MODULES:-fakegpu vgpu} for Linux $release with $kdir in $build"
# An outer make's flags are not for this one: it would look for that make's jobs, or only print.
env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u GNUMAKEFLAGS make --no-print-directory -C "$kdir" M="$build" -j"$(nproc)" "${settings[@]}" modules 9>&-
