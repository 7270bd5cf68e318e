#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

namespace mhar::operators {

/// The registered operator of that name, typed as the function that implements it.
template <typename Signature>
auto find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace mhar::operators
