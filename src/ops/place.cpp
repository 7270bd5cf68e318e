#include "ops/place.h"

namespace mhar::ops {
namespace {

c10::StorageImpl* storage_of(const at::Tensor& view) { return view.storage().unsafeGetStorageImpl(); }

}  // namespace

// The storage goes on saying how large it is, which is what claim() goes by.
void release(const at::Tensor& any_view) {
  storage_of(any_view)->set_data_ptr_noswap(c10::DataPtr(nullptr, any_view.device()));
}

void claim(const at::Tensor& any_view) {
  if (claimed(any_view)) return;
  c10::StorageImpl* storage = storage_of(any_view);
  storage->set_data_ptr_noswap(storage->allocator()->allocate(storage->nbytes()));
}

bool claimed(const at::Tensor& any_view) {
  const c10::StorageImpl* storage = storage_of(any_view);
  return storage->nbytes() == 0 || storage->data() != nullptr;
}

}  // namespace mhar::ops
