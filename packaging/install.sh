#!/usr/bin/env bash
# Runs inside the unpacked .run file: installs it below /usr/local, or where --install-path=… says. All of it or nothing.
#
#   <path>/mxc/memfabric_hybrid/{latest, set_env.sh, <version>/{<arch>-linux/{include,lib64,whl}, uninstall.sh, version.info}}
#
# The wheel goes into the default Python (python3 of the PATH) if it is for that version; the C library runs there.
set -euo pipefail
readonly STARTED_IN=${USER_PWD:-$PWD} # makeself has gone to where it unpacked this
cd "$(dirname "$0")"

path=/usr/local
for argument in "$@"; do
    case $argument in
        --install-path=?*) path=${argument#*=} ;;
        *)
            echo "unknown argument $argument; expected --install-path=<folder>" >&2
            exit 2
            ;;
    esac
done
if [[ $path != /* ]]; then path=$STARTED_IN/$path; fi

version=$(sed -n 's/^version=//p' version.info)
arch=$(sed -n 's/^arch=//p' version.info)
tag=$(sed -n 's/^python=//p' version.info)
if [[ $(uname -m) != "$arch" ]]; then
    echo "this package is for $arch, this machine is a $(uname -m)" >&2
    exit 1
fi
mkdir -p "$path"
root=$(cd "$path" && pwd)/mxc/memfabric_hybrid
target=$root/$version
if [[ -e $target ]]; then
    echo "$target is there already: run $target/uninstall.sh first" >&2
    exit 1
fi
undo() {
    rm -rf "$target"
    rmdir "$root" "$(dirname "$root")" 2>/dev/null || true # others may be there
    echo "memfabric_hybrid $version was not installed" >&2
}
trap undo EXIT
mkdir -p "$target"
cp -r "$arch-linux" version.info uninstall.sh "$target/"

library=$target/$arch-linux/lib64
python=$(command -v python3 || true)
if [[ -n $python ]] && [[ $("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])') == "$tag" ]]; then
    python=$("$python" -c 'import sys; print(sys.executable)')
    if ! "$python" -m pip install --quiet --disable-pip-version-check "$target/$arch-linux"/whl/*.whl; then
        echo "pip could not install the Python package into $python, for the reason above. If that Python is its" \
            "distribution's own (externally managed): activate a virtual environment, or set" \
            "PIP_BREAK_SYSTEM_PACKAGES=1. Without a network: install what the package needs before." >&2
        exit 1
    fi
    echo "$python" >"$library/mf_smem.python"
    echo "installed the Python package into $python"
else
    echo "the default Python (${python:-none}) is not $tag: install $target/$arch-linux/whl/*.whl into one that is, and write its path into $library/mf_smem.python" >&2
fi
cp set_env.sh "$root/set_env.sh"
ln -sfn "$version" "$root/latest"
trap - EXIT
echo "installed memfabric_hybrid $version in $target; now: source $root/set_env.sh"
