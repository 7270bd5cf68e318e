# CPU and CUDA give the same bits only if no product is fused with a sum. The other two options let the compiler vectorise
# square roots and divisions; neither changes a value.
set_source_files_properties(src/kernels/adamw/adamw_cpu.cpp PROPERTIES
  COMPILE_OPTIONS "-O3;-ffp-contract=off;-fno-math-errno;-fno-trapping-math")
set_source_files_properties(src/kernels/adamw/adamw.cu PROPERTIES COMPILE_OPTIONS "-Xcompiler=-ffp-contract=off")
