#pragma once
// For small functions that CPU loops and CUDA kernels must share so that both give the same bits.
#ifdef __CUDACC__
#define MHAR_HOST_DEVICE __host__ __device__
#else
#define MHAR_HOST_DEVICE
#endif
