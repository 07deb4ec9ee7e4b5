// Rows of C that no tile computes: their sum is zero, so C there is activation(bias), or zero.
//
// Contract: one block per row of `rows`, any number of threads; C row-major with 16-byte aligned rows of
// `tokens` elements, tokens a multiple of 8. Runs on every architecture. Defines: BF16, BIAS, ACTIVATION.
#include "activation.cuh"

extern "C" __global__ void fill_rows(const int* rows, const float* bias, unsigned char* c, long long c_row_bytes,
                                     int tokens) {
  const int row = rows[blockIdx.x];
#if BIAS
  const u32 both = pack(0.0f, 0.0f, bias[row]);
#else
  const u32 both = pack(0.0f, 0.0f, 0.0f);
#endif
  uint4* to = reinterpret_cast<uint4*>(c + row * c_row_bytes);
  for (int i = threadIdx.x; i < tokens / 8; i += blockDim.x) to[i] = make_uint4(both, both, both, both);
}
