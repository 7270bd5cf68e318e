# CPU and CUDA give the same bits only if no product is fused with a sum. The other two options let the compiler vectorise
# square roots and divisions; neither changes a value.
set_source_files_properties(src/kernels/adamw/adamw_cpu.cpp PROPERTIES
  COMPILE_OPTIONS "-O3;-ffp-contract=off;-fno-math-errno;-fno-trapping-math")
set_source_files_properties(src/kernels/adamw/adamw.cu PROPERTIES COMPILE_OPTIONS "-Xcompiler=-ffp-contract=off")
set_source_files_properties(src/kernels/clip/clip_cpu.cpp PROPERTIES COMPILE_OPTIONS "-O3")
# The CPU's depth read, loss and pointwise kernels are compiled once per level of instructions and choose when they run.
# Fused products are welcome here: nothing has to equal a GPU's bits. psabi: vectors are passed between inlined functions
# only.
set(level_options "-O3;-ffp-contract=fast;-fno-math-errno;-fno-trapping-math;-Wno-psabi")
set(depth_read src/kernels/depth_read)
set(pointwise src/kernels/pointwise)
set(head_loss src/kernels/head_loss)
set_source_files_properties(${depth_read}/cpu_any.cpp ${pointwise}/cpu_any.cpp ${head_loss}/cpu_any.cpp
  PROPERTIES COMPILE_OPTIONS "${level_options}")
set(avx2_options "${level_options}")
set(avx512_options "${level_options}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND avx2_options -march=x86-64-v3)
  list(APPEND avx512_options -march=x86-64-v4 -mprefer-vector-width=512)
endif()
set_source_files_properties(${depth_read}/cpu_avx2.cpp ${pointwise}/cpu_avx2.cpp ${head_loss}/cpu_avx2.cpp
  PROPERTIES COMPILE_OPTIONS "${avx2_options}")
set_source_files_properties(${depth_read}/cpu_avx512.cpp ${pointwise}/cpu_avx512.cpp ${head_loss}/cpu_avx512.cpp
  PROPERTIES COMPILE_OPTIONS "${avx512_options}")
# cuDNN's front end is headers alone, out of its wheel; cuDNN itself is looked up when the program runs.
if(MHAR_HAS_CUDA AND MHAR_TORCH)
  get_filename_component(site ${MHAR_TORCH_DIR} DIRECTORY)
  find_path(MHAR_CUDNN_FRONTEND cudnn_frontend.h PATHS ${site}/include NO_DEFAULT_PATH)
  find_path(MHAR_CUDNN cudnn.h PATHS ${site}/nvidia/cudnn/include)
endif()
set(attention src/kernels/attention)
get_target_property(kernel_sources mhar_kernels SOURCES)
list(FILTER kernel_sources EXCLUDE REGEX "kernels/attention/cudnn_")
if(MHAR_CUDNN_FRONTEND AND MHAR_CUDNN)
  list(APPEND kernel_sources ${CMAKE_SOURCE_DIR}/${attention}/cudnn_attention.cpp)
  set_source_files_properties(${attention}/cudnn_attention.cpp PROPERTIES
    INCLUDE_DIRECTORIES "${MHAR_CUDNN_FRONTEND};${MHAR_CUDNN};${CUDAToolkit_INCLUDE_DIRS}" COMPILE_OPTIONS "-w")
  target_link_libraries(mhar_kernels PUBLIC ${CMAKE_DL_LIBS})
else()
  list(APPEND kernel_sources ${CMAKE_SOURCE_DIR}/${attention}/cudnn_attention_no_cuda.cpp)
endif()
set_target_properties(mhar_kernels PROPERTIES SOURCES "${kernel_sources}")
