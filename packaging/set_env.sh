# Source this: it says where the C library and its headers are, to compilers and to the loader, and prints what it did.
# In the installation of a .run file it is beside `latest`, in a Python environment beside `include` and `lib`.
if [ -n "${BASH_SOURCE:-}" ]; then
    _mf_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
elif [ -n "${ZSH_VERSION:-}" ]; then
    _mf_here=$(cd "$(dirname "$(eval 'echo ${(%):-%x}')")" && pwd)
else
    _mf_here=$(pwd) # a shell that does not say which file it reads: cd there first
fi
if [ -e "$_mf_here/latest" ]; then
    MEMFABRIC_HYBRID_HOME_PATH=$_mf_here/latest
    _mf_lib=$MEMFABRIC_HYBRID_HOME_PATH/$(uname -m)-linux/lib64
else
    MEMFABRIC_HYBRID_HOME_PATH=$_mf_here
    _mf_lib=$MEMFABRIC_HYBRID_HOME_PATH/lib
fi
export MEMFABRIC_HYBRID_HOME_PATH
case ":${LD_LIBRARY_PATH:-}:" in
    *":$_mf_lib:"*) ;;
    *) export LD_LIBRARY_PATH="$_mf_lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ;;
esac
echo "MEMFABRIC_HYBRID_HOME_PATH is $MEMFABRIC_HYBRID_HOME_PATH"
echo "LD_LIBRARY_PATH begins with $_mf_lib"
unset _mf_here _mf_lib
