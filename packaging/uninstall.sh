#!/usr/bin/env bash
# Removes this version: its folder, its Python package, and what all versions share when it was the last one.
set -euo pipefail
target=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$target")
version=$(basename "$target")
for note in "$target"/*/lib64/mf_smem.python; do
    [[ -e $note ]] || continue
    python=$(<"$note")
    # Another version may have taken its place there.
    if [[ $("$python" -c 'from importlib import metadata; print(metadata.version("memfabric-hybrid"))' 2>/dev/null) == "$version" ]]; then
        "$python" -m pip uninstall --quiet --disable-pip-version-check --yes memfabric-hybrid
    fi
done
rm -rf "$target"
remaining=$(find "$root" -mindepth 1 -maxdepth 1 -type d | sort -V | tail -n 1)
if [[ -n $remaining ]]; then
    ln -sfn "$(basename "$remaining")" "$root/latest"
else
    rm -f "$root/latest" "$root/set_env.sh"
    rmdir "$root" "$(dirname "$root")" 2>/dev/null || true # mxc may have others
fi
echo "removed memfabric_hybrid $version"
