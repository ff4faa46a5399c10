#!/usr/bin/env bash
# Collects in a folder what a release on GitHub has: what make release wrote, the bills of materials, and the hashes of all.
# usage: collect-release.sh DIR
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "$1"
to=$(cd "$1" && pwd -P)
shopt -s nullglob
for file in dist/nvmlfab-*-linux-*.tar.gz dist/nvmlfab-*-linux-*-image.tar dist/nvmlfab_*.deb dist/nvmlfab-*.rpm; do
	name=$(basename "$file")
	cp "$file" "$to/${name//\~/.}" # GitHub writes ~ as a dot, and the hashes name files as people download them
done
for file in "$to"/*.tar.gz; do
	name=$(basename "$file" .tar.gz)
	tar -xzOf "$file" "$name/sbom.spdx.json" >"$to/$name.spdx.json"
done
cd "$to"
files=(nvmlfab*)
[ ${#files[@]} -gt 0 ] || { echo "there is no release in dist; run make release" >&2; exit 1; }
sha256sum "${files[@]}" >SHA256SUMS
