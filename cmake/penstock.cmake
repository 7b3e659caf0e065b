# How Penstock's folders become libraries.
#
# penstock_library(FOLDER SRCS ... DEPS ... [PRIVATE_DEPS ...]) makes the static library penstock_FOLDER
# (penstock_studies_theory of studies/theory) from the folder it is called in. Its headers are reached as
# "FOLDER/header.h", and only by targets that link to it: each library publishes an include root that holds its own folder alone. So the
# link list is the dependency rule, and an include that breaks it does not compile.

option(PENSTOCK_CLUSTER "Build the cluster; OFF: the compute library and its tests only, without gRPC" ON)
option(PENSTOCK_BUILD_TESTS "Build the tests" ON)
option(PENSTOCK_BUILD_BENCHMARKS "Build the benchmarks" ON)
option(PENSTOCK_WERROR "Treat warnings as errors" ON)
option(PENSTOCK_PRECOMPILED_HEADERS "Precompile the gRPC and GoogleTest headers" ON)
option(PENSTOCK_UNITY "Compile several files of a target together: a tenth of the time from scratch" ON)
set(PENSTOCK_SANITIZE "" CACHE STRING "Sanitizers, comma separated: address,undefined or thread")
option(PENSTOCK_FUZZ "Build the fuzz targets with libFuzzer (Clang; the preset fuzz sets the sanitizers)" OFF)
option(PENSTOCK_FAULT_POINTS "Build in the places at which tests make processes die (base/fault_points.h); never for use" OFF)
set(PENSTOCK_CUDA "AUTO" CACHE STRING "CUDA back-end: AUTO (where there are a GPU and the toolkit), ON or OFF")

include(hardening)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Precompiled headers are cached only when ccache may ignore their time stamps.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${CCACHE_PROGRAM})
endif()

add_library(penstock_options INTERFACE)
target_compile_features(penstock_options INTERFACE cxx_std_20)
# Of the C++ compiler, which nvcc does not take.
function(penstock_cxx_options)
  target_compile_options(penstock_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${ARGV}>")
endfunction()
penstock_cxx_options(-Wall -Wextra -Wno-missing-field-initializers -Wvla)
if(PENSTOCK_WERROR)
  penstock_cxx_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  penstock_cxx_options(-Wthread-safety)
else()
  # GCC 12 reports uninitialised and dangling reads inside optimised standard headers.
  penstock_cxx_options(-fpch-preprocess -Wno-maybe-uninitialized -Wno-restrict -Wno-array-bounds
    -Wno-stringop-overflow -Wno-use-after-free)
endif()
if(PENSTOCK_UNITY AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Warns of classes whose parts are local to a file, as soon as that file is included in another.
  penstock_cxx_options(-Wno-subobject-linkage)
endif()
if(PENSTOCK_SANITIZE)
  target_compile_options(penstock_options INTERFACE -fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(penstock_options INTERFACE -fsanitize=${PENSTOCK_SANITIZE})
endif()
if(PENSTOCK_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang" OR NOT PENSTOCK_SANITIZE MATCHES "fuzzer-no-link")
    message(FATAL_ERROR "PENSTOCK_FUZZ needs Clang and PENSTOCK_SANITIZE=address,undefined,fuzzer-no-link: use the preset fuzz")
  endif()
  target_compile_options(penstock_options INTERFACE -fno-sanitize-recover=all)  # undefined behaviour is a crash
endif()

# Compiles the files of `target` in groups. Every file still has to compile by itself, which PENSTOCK_UNITY=OFF shows.
function(penstock_unity target)
  if(PENSTOCK_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
endfunction()

# For what spends its time elsewhere: in the libraries that it calls, on the network, with the user.
function(penstock_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

function(penstock_publish_headers target folder)
  string(REPLACE "/" "_" name ${folder})
  set(root ${PROJECT_BINARY_DIR}/include-roots/${name})
  cmake_path(GET folder PARENT_PATH parent)
  file(MAKE_DIRECTORY ${root}/${parent})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${root}/${folder} SYMBOLIC)
  target_include_directories(${target} PUBLIC ${root})
endfunction()

function(penstock_library folder)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  string(REPLACE "/" "_" target penstock_${folder})
  add_library(${target} STATIC ${ARG_SRCS})
  penstock_unity(${target})
  target_link_libraries(${target} PUBLIC penstock_options ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  penstock_publish_headers(${target} ${folder})
endfunction()

# Puts the test `name` under the label `quick` and the target quick_tests if it is listed in tests/quick_tests.cmake: the
# whole program, or a part of it as a test of its own, NAME_quick.
function(penstock_quick_test name timeout)
  foreach(entry IN LISTS PENSTOCK_QUICK_TESTS)
    if(NOT entry MATCHES "^${name}(:(.+))?$")
      continue()
    endif()
    add_dependencies(quick_tests ${name})
    if("${CMAKE_MATCH_2}" STREQUAL "")
      set_property(TEST ${name} APPEND PROPERTY LABELS quick)
      continue()
    endif()
    add_test(NAME ${name}_quick COMMAND ${name} --gtest_filter=${CMAKE_MATCH_2}
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name}_quick PROPERTIES LABELS quick ENVIRONMENT PENSTOCK_DEVICE=cpu)
    if(timeout)
      set_tests_properties(${name}_quick PROPERTIES TIMEOUT ${timeout})
    endif()
  endforeach()
endfunction()

# penstock_test(NAME SRCS ... DEPS ... [LABELS ...] [TIMEOUT seconds]): one GoogleTest program, one ctest entry. With
# sanitizers it may take three times as long.
function(penstock_test name)
  if(NOT PENSTOCK_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  penstock_unity(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} penstock_test_support GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE PENSTOCK_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  penstock_compile_quickly(${name})
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  # What runs a cluster runs it on the CPU, whose results are exact.
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" ENVIRONMENT PENSTOCK_DEVICE=cpu)
  if(ARG_TIMEOUT)
    if(PENSTOCK_SANITIZE)
      math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 3")
    endif()
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  endif()
  penstock_quick_test(${name} "${ARG_TIMEOUT}")
endfunction()

# penstock_benchmark(NAME SRCS ... DEPS ...): one Google Benchmark program, run by `make bench`.
function(penstock_benchmark name)
  if(NOT PENSTOCK_BUILD_BENCHMARKS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} benchmark::benchmark)
  set_property(GLOBAL APPEND PROPERTY PENSTOCK_BENCHMARKS ${name})
endfunction()

# penstock_embed(OUTPUT HEADER NAME FILES...): writes OUTPUT, which defines the function NAME that HEADER
# declares: it returns the contents of FILES.
function(penstock_embed output header name)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D OUTPUT=${output} -D HEADER=${header} -D NAME=${name} -D "FILES=${files}"
            -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    COMMENT "Embedding ${name}" VERBATIM)
endfunction()
