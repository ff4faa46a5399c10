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
	printf 'nvmlfab: %s\n' "$*" >&2
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
	printf '%s\n' "$folder"
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
linked=$home/.links      # the links that it made, as links prints them

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

# leads PLACE: there is a link at that place, which leads into the installation.
leads() {
	[ -L "$prefix/$1" ] || return 1
	case $(readlink "$prefix/$1") in
	"$home"/*) return 0 ;;
	esac
	return 1
}

# ours PLACE: install.sh made the link at that place, and nobody has put another one there. A link of the user's own may lead
# into the installation as well; it is not in the list.
ours() {
	[ -f "$linked" ] && cut -d ' ' -f 1 "$linked" | grep -qxF -- "$1" && leads "$1"
}

# remove_links: removes the places that it reads, if links into the installation are there.
remove_links() {
	while read -r place _; do
		if leads "$place"; then rm -f "$prefix/$place" || return 1; fi
	done
}

# remove_folders LIST: removes those of the folders, the innermost first, that are empty.
remove_folders() {
	printf '%s\n' "$1" | while IFS= read -r folder; do
		[ -z "$folder" ] || rmdir "$folder" 2>/dev/null || true
	done
}

if [ -n "$uninstall" ]; then
	[ -d "$home" ] || fail "nvmlfab is not installed in $prefix"
	[ -f "$made" ] || fail "$home was not installed by install.sh; what installed it removes it"
	folders=$(cat "$made")
	[ -w "$prefix/lib" ] && [ -w "$home" ] || fail "no permission to write in $prefix"
	[ ! -f "$linked" ] || remove_links <"$linked"
	rm -rf "$home"
	remove_folders "$folders"
	printf '%s\n' "nvmlfab is removed from $prefix"
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
		ours "${file#"$prefix"/}" || fail "$file is a driver's library, and stays; leave --library out, or choose another prefix"
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
first=1 folders= before=
if [ -f "$made" ]; then
	first= folders=$(cat "$made")
	[ ! -f "$linked" ] || before=$(while read -r place file; do if leads "$place"; then printf '%s\n' "$place $file"; fi; done <"$linked")
fi
fresh=   # the folders that this installation made, the innermost first
added=   # the links that it made, a line each
swapped= # it has begun to put its files into $home
# make_folder DIR: makes a folder and those above it.
make_folder() {
	[ ! -d "$1" ] || return 0
	make_folder "$(dirname "$1")"
	mkdir "$1"
	fresh="$1
$fresh"
}
# undo: what was there before is there again. It goes on after an error, so that as much as possible is.
undo() {
	status=$?
	trap - EXIT
	trap '' INT TERM HUP
	set +e
	[ "$status" != 0 ] || status=1
	whole=1
	rm -rf "$new" || whole=
	printf '%s' "$added" | remove_links || whole=
	if [ -n "$first" ]; then
		[ -z "$swapped" ] || rm -rf "$home" || whole=
	elif [ -d "$old" ]; then
		rm -rf "$home"
		mv "$old" "$home" || whole=
	fi
	# A link is only made anew if its file has another name in the new release.
	while read -r place file; do
		[ -z "$place" ] || [ -L "$prefix/$place" ] || ln -s "$home/$file" "$prefix/$place" || whole=
	done <<END
$before
END
	remove_folders "$fresh"
	[ ! -d "$old" ] || fail "the installation did not succeed, and what was in $home is in $old; move it back"
	[ -n "$whole" ] || fail "the installation did not succeed, and not everything is as it was before, see above"
	printf '%s\n' "nvmlfab: the installation did not succeed; what was there before is there again" >&2
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
printf '%s\n' "$fresh$folders" >"$new/.made-folders"
if [ -z "$first" ]; then mv "$home" "$old"; fi
swapped=1
mv "$new" "$home"
while read -r place file; do
	if leads "$place"; then
		[ "$(readlink "$prefix/$place")" != "$home/$file" ] || continue
		rm -f "$prefix/$place"
	fi
	added="$added$place $file
"
	ln -s "$home/$file" "$prefix/$place"
done <"$linked"
trap - EXIT
trap '' INT TERM HUP
# From here on the new release is there. Links that only the old one had lead nowhere.
while read -r place file; do
	[ -z "$place" ] || ours "$place" || printf '%s\n' "$place $file" | remove_links
done <<END
$before
END
rm -rf "$old"

printf '%s\n' "nvmlfab is installed in $prefix: $prefix/bin/nvmlfab run -- nvidia-smi"
[ -z "$library" ] || printf '%s\n' "programs find the library if LD_LIBRARY_PATH, or ldconfig, names $prefix/lib"
