#pragma once
#include <cstdint>

#include "data/token_stream.h"
#include "model/decoder.h"

namespace mhar {

struct Evaluation {
  double loss = 0;     ///< mean -log p over all targets, nats a token
  int64_t tokens = 0;  ///< targets counted
  int64_t windows = 0;
};

/// Mean loss over the first `windows` windows (0: all) of a stream in order, `batch` windows at a time. Throws
/// InputError when the stream holds no window. Asking for more windows than there are uses all of them.
Evaluation evaluate(const Decoder& model, const data::TokenStream& stream, int64_t windows, int64_t sequence,
                    int64_t batch);

/// Token-averaged routing weights of a depth design over the same windows, as the JSON text of routing.json
/// (site, name, weights [heads][sources]); empty for designs without depth reads.
std::string routing_map(const Decoder& model, const data::TokenStream& stream, int64_t windows, int64_t sequence,
                        int64_t batch, int64_t step);

}  // namespace mhar
