# LibTorch out of the torch wheel, without the wheel's own CMake package: that one demands a CUDA toolkit whenever the
# wheel was built with CUDA, and a machine without nvcc has to build too.
set(MHAR_PYTHON ${CMAKE_CURRENT_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH "Python whose torch is linked")
execute_process(
  COMMAND ${MHAR_PYTHON} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE MHAR_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "Torch: wanted a torch wheel in ${MHAR_PYTHON}, found none; run scripts/setup")
endif()
message(STATUS "LibTorch: ${MHAR_TORCH_DIR}")
find_package(Threads REQUIRED)
add_library(mhar_torch INTERFACE)
# The wheel carries headers of another fmt than the system's, which is the one that spdlog and we link.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/first)
find_path(MHAR_FMT_INCLUDE fmt/format.h PATHS /usr/include REQUIRED)
file(CREATE_LINK ${MHAR_FMT_INCLUDE}/fmt ${CMAKE_BINARY_DIR}/first/fmt SYMBOLIC)
target_include_directories(mhar_torch SYSTEM INTERFACE
  ${CMAKE_BINARY_DIR}/first
  ${MHAR_TORCH_DIR}/include ${MHAR_TORCH_DIR}/include/torch/csrc/api/include)
target_compile_options(mhar_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-unused-parameter>)
target_link_libraries(mhar_torch INTERFACE Threads::Threads ${MHAR_TORCH_DIR}/lib/libtorch_cpu.so ${MHAR_TORCH_DIR}/lib/libc10.so)
# The wheel's own CUDA libraries come in through its run paths, so the linker need not resolve them here.
target_link_options(mhar_torch INTERFACE -Wl,-rpath,${MHAR_TORCH_DIR}/lib -Wl,--unresolved-symbols=ignore-in-shared-libs)
if(MHAR_HAS_CUDA)
  if(NOT EXISTS ${MHAR_TORCH_DIR}/lib/libtorch_cuda.so)
    message(FATAL_ERROR "Torch: nvcc was found, but the torch wheel has no CUDA; run scripts/setup again or configure with -DMHAR_CUDA=OFF")
  endif()
  # Nothing refers to a symbol of these; they register the CUDA backend when they are loaded.
  target_link_options(mhar_torch INTERFACE "SHELL:-Wl,--no-as-needed \"${MHAR_TORCH_DIR}/lib/libtorch_cuda.so\" \"${MHAR_TORCH_DIR}/lib/libc10_cuda.so\" -Wl,--as-needed")
  target_link_libraries(mhar_torch INTERFACE CUDA::cudart)
endif()
