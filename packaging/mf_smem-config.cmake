# find_package(mf_smem) gives mf_smem::mf_smem. Relative to where this file is: the folder may be anywhere.
get_filename_component(_mf_smem_lib "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
get_filename_component(_mf_smem_include "${_mf_smem_lib}/../include" ABSOLUTE)
if(NOT TARGET mf_smem::mf_smem)
    add_library(mf_smem::mf_smem SHARED IMPORTED)
    set_target_properties(mf_smem::mf_smem PROPERTIES
        IMPORTED_LOCATION "${_mf_smem_lib}/libmf_smem.so"
        IMPORTED_SONAME libmf_smem.so.1
        INTERFACE_INCLUDE_DIRECTORIES "${_mf_smem_include};${_mf_smem_include}/smem/host")
endif()
unset(_mf_smem_lib)
unset(_mf_smem_include)
