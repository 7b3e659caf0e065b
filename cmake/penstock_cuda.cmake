# Looks for what the CUDA back-end needs and enables the language. Sets PENSTOCK_CUDA_FOUND.
#
# PENSTOCK_CUDA: AUTO builds it on a machine with a GPU where the toolkit, cuBLASLt and cuDNN are found: its kernels
# take minutes to compile, for nothing where none runs. ON insists, OFF does not. Sanitizers cannot see into GPU code,
# so AUTO leaves it out with them.
set(PENSTOCK_CUDA_FOUND OFF)
if(PENSTOCK_CUDA STREQUAL "OFF" OR (PENSTOCK_CUDA STREQUAL "AUTO" AND PENSTOCK_SANITIZE))
  return()
endif()
if(PENSTOCK_CUDA STREQUAL "AUTO" AND NOT EXISTS /dev/nvidiactl AND NOT EXISTS /dev/dxg)
  message(STATUS "CUDA back-end: not built (no GPU here; -DPENSTOCK_CUDA=ON builds it all the same)")
  return()
endif()

# Real code for Ampere (80), Hopper (90) and Blackwell (120, which runs on 121, the highest number of CUDA
# 13.0, too); 90's portable code serves what lies between, 120's what will come.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90 120)
endif()
if(NOT DEFINED CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  find_package(CUDAToolkit 13)
  if(CUDAToolkit_FOUND)
    find_library(PENSTOCK_CUDNN cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
    find_library(PENSTOCK_CUDNN_GRAPH cudnn_graph HINTS ${CUDAToolkit_LIBRARY_DIR})
    find_path(PENSTOCK_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})  # not required
  endif()
endif()

if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND AND PENSTOCK_CUDNN AND PENSTOCK_CUDNN_GRAPH)
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(PENSTOCK_CUDA_FOUND ON)
  # The back-end is a shared library, and these become part of it.
  foreach(library penstock_base penstock_model)
    set_target_properties(${library} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endforeach()
  message(STATUS "CUDA back-end: toolkit ${CUDAToolkit_VERSION}, ${PENSTOCK_CUDNN}")
elseif(PENSTOCK_CUDA STREQUAL "ON")
  message(FATAL_ERROR "PENSTOCK_CUDA=ON needs the CUDA toolkit 13 or newer with cuBLASLt, and cuDNN 9; "
    "found: compiler ${CMAKE_CUDA_COMPILER}, toolkit ${CUDAToolkit_VERSION}, cuDNN ${PENSTOCK_CUDNN}")
else()
  message(STATUS "CUDA back-end: not built (no toolkit or no cuDNN)")
endif()
