#include "kernels/head_loss/cpu_rows.h"

namespace mhar::kernels {

const HeadLossPass head_loss_avx2 = head_loss_pass;

}  // namespace mhar::kernels
