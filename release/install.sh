#!/bin/sh
# Installs the release that this file is in, or removes it again.
set -eu
umask 022

usage() {
	cat <<'END'
usage: install.sh [--prefix DIR] [--library]
       install.sh --uninstall [--prefix DIR]

Installs nvmlfab into DIR/lib/nvmlfab, and links its commands into DIR/bin, its manual pages into
DIR/share/man, and what completes commands into DIR/share. DIR is /usr/local by default. What an
earlier install.sh put there is replaced. Another's files are never overwritten: if one is in the
way, nothing is changed.

  --prefix DIR   where to install
  --library      also link libnvidia-ml.so.1 into DIR/lib, for programs that are started without
                 nvmlfab run; not where there is a driver's
  --uninstall    remove what install.sh has installed there, and nothing else
END
}

fail() {
	echo "nvmlfab: $*" >&2
	exit 1
}

prefix=/usr/local library= uninstall=
while [ $# -gt 0 ]; do
	case $1 in
	--prefix) [ $# -gt 1 ] || fail "--prefix wants a folder"; prefix=$2; shift ;;
	--prefix=*) prefix=${1#*=} ;;
	--library) library=1 ;;
	--uninstall) uninstall=1 ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; fail "there is no option $1" ;;
	esac
	shift
done
[ -n "$prefix" ] || fail "the prefix is empty"
[ -z "$uninstall" ] || [ -z "$library" ] || fail "--library goes with an installation only"
case $prefix in
*[:\;]*) fail "$prefix: the dynamic linker takes no folder with : or ; in its name" ;;
*'
'*) fail "the prefix has a line break in it" ;;
/*) ;;
*) prefix=$PWD/$prefix ;;
esac
# existing DIR: the innermost folder of a path that there is.
existing() {
	folder=$1
	while [ ! -e "$folder" ] && [ ! -L "$folder" ]; do folder=$(dirname "$folder"); done
	echo "$folder"
}
# One spelling of the prefix, whatever links and dots it has, so that what one command installs another one finds.
there=$(existing "$prefix")
[ -d "$there" ] || fail "$there is no folder"
rest=${prefix#"$there"}
case $rest/ in
*/../* | */./*) fail "$prefix does not exist; name it without dots" ;;
esac
there=$(cd "$there" && pwd -P)
prefix=${there%/}$rest
while [ "$prefix" != "${prefix%/}" ]; do prefix=${prefix%/}; done

home=$prefix/lib/nvmlfab
made=$home/.made-folders # what install.sh knows its own installation by: the folders that it made

# links NAME: what is linked from the prefix into the installation in folder NAME, a line each: the place, and the file.
links() {
	for command in nvmlfab vgpuctl mock-ib; do echo "bin/$command bin/$command"; done
	(cd "$1" && for page in man/man1/*; do echo "share/$page $page"; done)
	echo "share/bash-completion/completions/nvmlfab completions/nvmlfab.bash"
	echo "share/zsh/site-functions/_nvmlfab completions/_nvmlfab"
	echo "share/fish/vendor_completions.d/nvmlfab.fish completions/nvmlfab.fish"
	if [ -n "$library" ] || ours "lib/libnvidia-ml.so.1"; then
		echo "lib/libnvidia-ml.so.1 lib/libnvidia-ml.so.1"
		echo "lib/libnvidia-ml.so lib/libnvidia-ml.so.1"
	fi
}

# ours PLACE: a link of ours is at that place.
ours() {
	[ -L "$prefix/$1" ] || return 1
	case $(readlink "$prefix/$1") in
	"$home"/*) return 0 ;;
	esac
	return 1
}

# remove_links: all links of ours, whichever version made them.
remove_links() {
	for folder in bin lib share/man/man1 share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d; do
		[ -d "$prefix/$folder" ] || continue
		for file in "$prefix/$folder"/*; do
			if ours "$folder/${file##*/}"; then rm -f "$file"; fi
		done
	done
}

if [ -n "$uninstall" ]; then
	[ -d "$home" ] || fail "nvmlfab is not installed in $prefix"
	[ -f "$made" ] || fail "$home was not installed by install.sh; what installed it removes it"
	folders=$(cat "$made")
	[ -w "$prefix/lib" ] && [ -w "$home" ] || fail "no permission to write in $prefix"
	remove_links
	rm -rf "$home"
	echo "$folders" | while IFS= read -r folder; do # the innermost first
		[ -z "$folder" ] || rmdir "$folder" 2>/dev/null || true
	done
	echo "nvmlfab is removed from $prefix"
	exit 0
fi

here=$(cd "$(dirname "$0")" && pwd -P)
[ -f "$here/SHA256SUMS" ] || fail "$here is not a whole release: SHA256SUMS is missing; unpack the tarball again"
(cd "$here" && sha256sum -c --quiet SHA256SUMS) >&2 || fail "$here is not a whole release, see above; unpack the tarball again"
machine=$(sed -n 's/.*"platform": "linux\/\([a-z0-9]*\)".*/\1/p' "$here/manifest.json")
case $machine:$(uname -m) in
amd64:x86_64 | arm64:aarch64) ;;
*) echo "nvmlfab: warning: this is a release for $machine, and the machine is $(uname -m)" >&2 ;;
esac

# Everything that could be in the way is looked for before anything changes.
if [ -e "$home" ] || [ -L "$home" ]; then
	[ -f "$made" ] || fail "$home is there, and install.sh did not put it there; remove it, or choose another prefix"
fi
case $here/ in
"$home"/*) fail "$here is the installation itself; unpack the tarball elsewhere and run its install.sh" ;;
esac
if [ -n "$library" ]; then
	for file in "$prefix"/lib/libnvidia-ml.so* "$prefix"/lib/*-linux-gnu/libnvidia-ml.so* "$prefix"/lib64/libnvidia-ml.so*; do
		[ -e "$file" ] || [ -L "$file" ] || continue
		ours "lib/${file##*/}" || fail "$file is a driver's library, and stays; leave --library out, or choose another prefix"
	done
fi
links "$here" | while read -r place _; do
	if [ -e "$prefix/$place" ] || [ -L "$prefix/$place" ]; then
		ours "$place" || fail "$prefix/$place is there and not nvmlfab's; nothing was changed"
	fi
done || exit 1

for folder in "$prefix/lib" "$prefix/bin" "$prefix/share"; do
	there=$(existing "$folder")
	[ -d "$there" ] || fail "$there is no folder"
	[ -w "$there" ] || fail "no permission to write in $there; run install.sh as root, or choose another prefix"
done

new=$prefix/lib/.nvmlfab-new.$$ old=$prefix/lib/.nvmlfab-old.$$
folders=
[ ! -f "$made" ] || folders=$(cat "$made")
# make_folder DIR: makes a folder and those above it, and remembers which were not there, the innermost first.
make_folder() {
	[ ! -d "$1" ] || return 0
	make_folder "$(dirname "$1")"
	mkdir "$1"
	folders="$1
$folders"
}
undo() {
	status=$?
	trap - EXIT
	rm -rf "$new"
	if [ -d "$old" ]; then rm -rf "$home"; mv "$old" "$home"; fi
	if [ ! -f "$made" ]; then # a first installation leaves nothing
		remove_links
		echo "$folders" | while IFS= read -r folder; do [ -z "$folder" ] || rmdir "$folder" 2>/dev/null || true; done
	fi
	[ "$status" != 0 ] || status=1
	echo "nvmlfab: the installation did not succeed; what was there before is there again" >&2
	exit "$status"
}
trap undo EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

make_folder "$prefix/lib"
mkdir "$new"
cp -R "$here/." "$new/"
links "$here" >"$new/.links"
while read -r place _; do make_folder "$(dirname "$prefix/$place")"; done <"$new/.links"
echo "$folders" >"$new/.made-folders"
if [ -d "$home" ]; then mv "$home" "$old"; fi
mv "$new" "$home"
remove_links
while read -r place file; do ln -s "$home/$file" "$prefix/$place"; done <"$home/.links"
rm "$home/.links"
trap - EXIT INT TERM HUP
rm -rf "$old"

echo "nvmlfab is installed in $prefix: $prefix/bin/nvmlfab run -- nvidia-smi"
[ -z "$library" ] || echo "programs find the library if LD_LIBRARY_PATH, or ldconfig, names $prefix/lib"
