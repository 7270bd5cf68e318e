# CPU and CUDA give the same bits only if no product is fused with a sum. The other two options let the compiler vectorise
# square roots and divisions; neither changes a value.
set_source_files_properties(src/kernels/adamw/adamw_cpu.cpp PROPERTIES
  COMPILE_OPTIONS "-O3;-ffp-contract=off;-fno-math-errno;-fno-trapping-math")
set_source_files_properties(src/kernels/adamw/adamw.cu PROPERTIES COMPILE_OPTIONS "-Xcompiler=-ffp-contract=off")
# The CPU's depth read is compiled once per level of instructions and chooses when it runs. Fused products are welcome
# here: nothing has to equal a GPU's bits. psabi: vectors are passed between inlined functions only.
set(level_options "-O3;-ffp-contract=fast;-fno-math-errno;-fno-trapping-math;-Wno-psabi")
set(depth_read src/kernels/depth_read)
set_source_files_properties(${depth_read}/cpu_any.cpp PROPERTIES COMPILE_OPTIONS "${level_options}")
set(avx2_options "${level_options}")
set(avx512_options "${level_options}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND avx2_options -march=x86-64-v3)
  list(APPEND avx512_options -march=x86-64-v4 -mprefer-vector-width=512)
endif()
set_source_files_properties(${depth_read}/cpu_avx2.cpp PROPERTIES COMPILE_OPTIONS "${avx2_options}")
set_source_files_properties(${depth_read}/cpu_avx512.cpp PROPERTIES COMPILE_OPTIONS "${avx512_options}")
