# Compiles wheels: with the compiler that the tests use, for machines whose glibc is older than this one's.
#
#   MF_WHEEL_ARCHITECTURE  x86_64 or aarch64
#   MF_WHEEL_SYSROOT       headers and libraries of that glibc (packaging/debian-root)
#   MF_WHEEL_GLIBC_OBJECT  packaging/older_glibc.cpp, compiled
set(sysroot "$ENV{MF_WHEEL_SYSROOT}")
set(triplet "$ENV{MF_WHEEL_ARCHITECTURE}-linux-gnu")

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR "$ENV{MF_WHEEL_ARCHITECTURE}")
set(CMAKE_CXX_COMPILER ${triplet}-g++)

# Headers: the compiler's own, then the sysroot's, and nothing else of this system.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -x c++ -E -v /dev/null ERROR_VARIABLE search OUTPUT_QUIET)
string(REGEX REPLACE ".*search starts here:(.*)End of search list.*" "\\1" search "${search}")
string(REGEX MATCHALL "/[^ \n]+/(c[+][+]|gcc|gcc-cross)/[^ \n]+" own_headers "${search}")
list(FILTER own_headers EXCLUDE REGEX "-linux-gnu/include$")
set(flags "-nostdinc")
foreach(folder IN LISTS own_headers)
    string(STRIP "${folder}" folder)
    string(APPEND flags " -isystem ${folder}")
endforeach()
string(APPEND flags " -isystem ${sysroot}/usr/include/${triplet} -isystem ${sysroot}/usr/include")
set(CMAKE_CXX_FLAGS_INIT "${flags} -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON CACHE BOOL "")  # a path of this machine would leave its length behind

# Libraries: the sysroot's. C++'s own is linked in, because older machines have an older one; the unwinder is not,
# because threads that are ended (pthread_exit) are unwound by the system's.
set(link "--sysroot=${sysroot} -B${sysroot}/usr/lib/${triplet} -L${sysroot}/usr/lib/${triplet}")
string(APPEND link " -static-libstdc++ -Wl,--exclude-libs,ALL -Wl,--build-id=none")
foreach(kind EXE SHARED MODULE)
    set(CMAKE_${kind}_LINKER_FLAGS_INIT "${link}")
endforeach()
set(CMAKE_CXX_STANDARD_LIBRARIES "$ENV{MF_WHEEL_GLIBC_OBJECT} -lpthread -ldl" CACHE STRING "")
