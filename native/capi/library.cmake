# mf_smem: the C interface. It shows smem_* and nothing else, and is linked with no libpython: it finds the one of the
# process, or of the environment in which it is installed, when it is used (capi/environment.h).
#
# Programs need libmf_smem.so.1. Packages of Python contain no links, so that is a library of its own that has nothing
# but a need for libmf_smem.so: one real library, whichever name a program loads.
#
# Whoever includes this says what the core is (MF_SHARED_CORE) and which file the Python module (MF_NATIVE_MODULE).

execute_process(COMMAND "${Python_EXECUTABLE}" -c "import sysconfig; print(sysconfig.get_config_var('LDVERSION'))"
                OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE MF_PYTHON_LDVERSION)
set(MF_SMEM_SONAME libmf_smem.so.1)

file(GLOB MF_CAPI_SOURCES CONFIGURE_DEPENDS capi/*.cpp)
add_library(mf_smem SHARED ${MF_CAPI_SOURCES})
target_include_directories(mf_smem PRIVATE "${PROJECT_SOURCE_DIR}/include" SYSTEM PRIVATE ${Python_INCLUDE_DIRS})
target_link_libraries(mf_smem PRIVATE ${MF_SHARED_CORE} memfabric_warnings)
target_compile_definitions(mf_smem PRIVATE
    MF_PYTHON_VERSION="${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}"
    MF_PYTHON_LIBRARY="libpython${MF_PYTHON_LDVERSION}.so.1.0"
    MF_NATIVE_MODULE="${MF_NATIVE_MODULE}")
target_precompile_headers(mf_smem PRIVATE ${MF_COMMON_HEADERS})
target_link_options(mf_smem PRIVATE -Wl,-z,defs -Wl,-z,now -Wl,-z,nodelete
    "-Wl,-soname,${MF_SMEM_SONAME}" "-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/capi/exports.map")
set_target_properties(mf_smem PROPERTIES
    CXX_VISIBILITY_PRESET default UNITY_BUILD OFF NO_SONAME ON INSTALL_RPATH "$ORIGIN"
    INTERPROCEDURAL_OPTIMIZATION_RELEASE ${MF_LTO} LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/capi/exports.map")

# Never installed: what the other name is linked with, so that it needs a file of this name.
add_library(mf_smem_file SHARED capi/names/name.cpp)
set_target_properties(mf_smem_file PROPERTIES OUTPUT_NAME mf_smem
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/names")
add_library(mf_smem_soname SHARED capi/names/name.cpp)
target_link_libraries(mf_smem_soname PRIVATE -Wl,--no-as-needed mf_smem_file)
set_target_properties(mf_smem_soname PROPERTIES OUTPUT_NAME mf_smem SUFFIX .so.1 NO_SONAME ON INSTALL_RPATH "$ORIGIN")
target_link_options(mf_smem_soname PRIVATE "-Wl,-soname,${MF_SMEM_SONAME}")

install(TARGETS mf_smem mf_smem_soname LIBRARY DESTINATION memfabric_hybrid/lib)
