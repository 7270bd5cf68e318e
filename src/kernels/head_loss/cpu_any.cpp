#include "kernels/head_loss/cpu_rows.h"

namespace mhar::kernels {

const HeadLossPass head_loss_any = head_loss_pass;

}  // namespace mhar::kernels
