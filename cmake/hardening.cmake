# Hardening: what compiler and linker do against the memory errors that tests have not found.
#
# PENSTOCK_HARDENING: checks of the stack and of calls of the C library (-D_FORTIFY_SOURCE=3, which GCC 12 and Clang
# know with glibc 2.34; older ones take it as 2), control flow that jumps only where it may, programs at random addresses
# (PIE), and tables of addresses that are read-only once the program runs (full RELRO).
# PENSTOCK_ASSERTIONS: the standard library checks indices and empty containers (-D_GLIBCXX_ASSERTIONS).
#
# Both are for all of Penstock's own files, what protoc writes among them, and neither with sanitizers, which check more and
# replace the same functions. tests/hardening checks what was built.

option(PENSTOCK_HARDENING "Stack protector, fortified calls, PIE and full RELRO; OFF with sanitizers" ON)
option(PENSTOCK_ASSERTIONS "Checks of the standard library, but not in kernels; OFF with sanitizers" ON)
if(PENSTOCK_SANITIZE)
  return()
endif()

if(PENSTOCK_ASSERTIONS)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-D_GLIBCXX_ASSERTIONS>)
endif()

if(NOT PENSTOCK_HARDENING)
  return()
endif()

include(CheckCXXCompilerFlag)
foreach(flag stack-protector-strong stack-clash-protection cf-protection)
  string(MAKE_C_IDENTIFIER ${flag} name)
  check_cxx_compiler_flag(-f${flag} PENSTOCK_HAS_${name})  # cf-protection is of x86 alone
  if(PENSTOCK_HAS_${name})
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-f${flag}>)
  endif()
endforeach()
# glibc fortifies only what is optimised, and warns of all else. Some compilers define it by themselves.
set(optimised $<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>)
add_compile_options($<${optimised}:-U_FORTIFY_SOURCE> $<${optimised}:-D_FORTIFY_SOURCE=3>)

# Most distributions' compilers make such programs anyway. What becomes part of a shared library has -fPIC instead, and the
# later of the two flags counts.
set(type $<TARGET_PROPERTY:TYPE>)
set(is_shared $<OR:$<STREQUAL:${type},SHARED_LIBRARY>,$<STREQUAL:${type},MODULE_LIBRARY>>)
set(has_fpic $<OR:${is_shared},$<BOOL:$<TARGET_PROPERTY:POSITION_INDEPENDENT_CODE>>>)
add_compile_options($<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:${has_fpic}>>:-fPIE>)
add_link_options($<$<STREQUAL:${type},EXECUTABLE>:-pie>
  LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
