#!/usr/bin/env bash
# Removes this version: its folder, its Python package, and what all versions share when it was the last one. Another
# version that stays, and had the same Python before, gets it back.
set -euo pipefail
target=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$target")
version=$(basename "$target")
was_latest=$([[ $(readlink "$root/latest") == "$version" ]] && echo yes || true)
freed=() # interpreters that had the package of this version, and have none now
for note in "$target"/*/lib64/mf_smem.python; do
    [[ -e $note ]] || continue
    python=$(<"$note")
    # Another version may have taken its place there.
    if [[ $("$python" -c 'from importlib import metadata; print(metadata.version("memfabric-hybrid"))' 2>/dev/null) == "$version" ]]; then
        "$python" -m pip uninstall --quiet --disable-pip-version-check --yes memfabric-hybrid
        freed+=("$python")
    fi
done
rm -rf "$target"

mapfile -t remaining < <(find "$root" -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sort -rV)
if [[ ${#remaining[@]} == 0 ]]; then
    rm -f "$root/latest" "$root/set_env.sh"
    rmdir "$root" "$(dirname "$root")" 2>/dev/null || true # mxc may have others
else
    if [[ -n $was_latest ]]; then ln -sfn "${remaining[0]}" "$root/latest"; fi
    for python in "${freed[@]}"; do
        for other in "$(readlink "$root/latest")" "${remaining[@]}"; do
            grep -qsxF "$python" "$root/$other"/*/lib64/mf_smem.python || continue
            # What it needs is there: it was installed before.
            "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index "$root/$other"/*/whl/*.whl
            echo "installed the Python package of $other into $python again"
            break
        done
    done
fi
echo "removed memfabric_hybrid $version"
