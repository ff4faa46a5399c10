#!/usr/bin/env bash
# Downloads a release of nvmlfab, checks it, and sets a job's environment so that its next steps see GPUs.
set -euo pipefail

usage() {
	cat <<'END'
usage: setup.sh [--profile NAME|FILE] [--gpus N] [--version VERSION] [--source ADDRESS] [--into DIR]

Unpacks a release of nvmlfab into DIR, ./nvmlfab by default, and writes a profile and a state folder
beside it. In a job of GitHub the variables and the PATH hold for the steps that follow. Elsewhere
the script prints them for the shell: eval "$(setup.sh …)".

  --profile   a shipped board, or a profile file; h100 by default
  --gpus      how many GPUs there are; the profile's number by default
  --version   the release; the latest one by default
  --source    the address of a folder with the release and its SHA256SUMS; GitHub's by default
END
}

fail() {
	echo "nvmlfab: $*" >&2
	exit 1
}

profile=h100 gpus='' version='' source='' into=nvmlfab
while [ $# -gt 0 ]; do
	case $1 in
	--profile | --gpus | --version | --source | --into)
		[ $# -gt 1 ] || fail "$1 wants a value"
		declare "${1#--}=$2"
		shift
		;;
	-h | --help)
		usage
		exit 0
		;;
	*)
		usage >&2
		fail "there is no option $1"
		;;
	esac
	shift
done
[[ $gpus =~ ^[0-9]*$ ]] || fail "--gpus wants a number, not \"$gpus\""
case $(uname -sm) in
"Linux x86_64") arch=amd64 ;;
"Linux aarch64") arch=arm64 ;;
*) fail "there is no release for $(uname -sm): use a runner with Linux on x86_64 or aarch64" ;;
esac

get() { # ADDRESS FILE
	curl -fsSL --retry 3 -o "$2" "$1" || fail "$1 cannot be fetched; is there such a release?"
}

releases=https://github.com/nvmlfab/nvmlfab/releases
if [ -z "$version" ]; then
	[ -z "$source" ] || fail "--source wants --version"
	latest=$(curl -fsSLI --retry 3 -o /dev/null -w '%{url_effective}' "$releases/latest") || fail "$releases/latest cannot be asked"
	version=${latest##*/}
fi
version=${version#v}
[ -n "$source" ] || source=$releases/download/v$version

name=nvmlfab-$version-linux-$arch
mkdir -p "$into"
into=$(cd "$into" && pwd -P)
get "$source/$name.tar.gz" "$into/$name.tar.gz"
get "$source/SHA256SUMS" "$into/SHA256SUMS"
grep -F " $name.tar.gz" "$into/SHA256SUMS" >"$into/sum" || fail "$source/SHA256SUMS does not name $name.tar.gz"
(cd "$into" && sha256sum -c --quiet sum >&2) || fail "$name.tar.gz is not what SHA256SUMS says"
tar -xzf "$into/$name.tar.gz" -C "$into"
rm "$into/$name.tar.gz" "$into/SHA256SUMS" "$into/sum"

nvmlfab=$into/$name/bin/nvmlfab
case $profile in
*/* | *.yaml | *.yml) [ -f "$profile" ] || fail "there is no profile file $profile"; cp "$profile" "$into/profile.yaml" ;;
*) printf 'extends: %s\n' "$profile" >"$into/profile.yaml" ;;
esac
if [ -n "$gpus" ]; then
	! grep -q '^count:' "$into/profile.yaml" || fail "$profile has a count of its own; leave --gpus out"
	printf 'count: %s\n' "$gpus" >>"$into/profile.yaml"
fi
"$nvmlfab" profiles validate "$into/profile.yaml" >&2 || exit 1
mkdir -p "$into/state"

# set_variable NAME VALUE
set_variable() {
	if [ -n "${GITHUB_ENV:-}" ]; then
		printf '%s=%s\n' "$1" "$2" >>"$GITHUB_ENV"
	else
		printf 'export %s=%q\n' "$1" "$2"
	fi
}
set_variable MOCK_NVML_CONFIG "$into/profile.yaml"
set_variable NVMLFAB_STATE_DIR "$into/state"
set_variable LD_LIBRARY_PATH "$into/$name/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
if [ -n "${GITHUB_PATH:-}" ]; then
	echo "$into/$name/bin" >>"$GITHUB_PATH"
else
	set_variable PATH "$into/$name/bin:$PATH"
fi
[ -z "${GITHUB_OUTPUT:-}" ] || echo "path=$into/$name" >>"$GITHUB_OUTPUT"
"$nvmlfab" version >&2
