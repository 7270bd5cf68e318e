#include "cli/npy.h"

#include <string>

namespace mhar::cli {

void write_npy(const fs::path& path, const at::Tensor& tensor) {
  const at::Tensor array = tensor.contiguous();
  std::string shape;
  for (const int64_t extent : array.sizes()) shape += std::to_string(extent) + ",";
  std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }";
  // The format wants the data on a 64-byte boundary and the header to end in a newline; 10 bytes stand before it.
  dictionary.append(63 - (dictionary.size() + 10) % 64, ' ').append("\n");
  const auto size = static_cast<uint16_t>(dictionary.size());
  std::string header("\x93NUMPY\x01\x00", 8);
  header.push_back(static_cast<char>(size & 255));
  header.push_back(static_cast<char>(size >> 8));
  FileWriter file(path);
  file.write(header + dictionary);
  file.write({static_cast<const std::byte*>(array.const_data_ptr()), array.nbytes()});
  file.close();
}

}  // namespace mhar::cli
