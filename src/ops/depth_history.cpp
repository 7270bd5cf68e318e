#include "ops/depth_history.h"

#include <torch/torch.h>

#include "base/error.h"
#include "ops/depth_read.h"
#include "ops/precision.h"
#include "ops/shapes.h"

namespace mhar::ops {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

[[noreturn]] void misuse(const std::string& got, const std::string& advice) {
  throw std::logic_error(
      describe({"depth history", "", "one forward pass and one backward pass over it", got, advice}));
}

}  // namespace

struct DepthHistory::Memory : torch::CustomClassHolder {
  DepthReads reads;
  DepthEngine engine;
  kernels::DepthHistoryRun forward, backward;
  at::Device device = at::kCPU;
  at::ScalarType type = at::kFloat;

  Tensor sources, mixes;                                               // [R, P, D]
  Tensor rho, norm_rho, lse, keys;                                     // [R, P], [R, P], [R, P, H], [R, D]
  std::vector<Tensor> norms;                                           // [D] each
  std::vector<c10::VariableVersion> versions;                          // of the slots handed out
  Tensor deltas, through_rho, scratch, key_gradients, norm_gradients;  // from the first backward call on

  bool opened = false;
  int64_t next = 0;  // site of the next step
  int64_t due = -1;  // site whose backward comes next
  bool backward_begun = false;

  at::TensorOptions values() const { return at::TensorOptions().dtype(type).device(device); }
  at::TensorOptions statistics() const { return values().dtype(compute_type(type)); }

  kernels::DepthMemory pointers() const {
    kernels::DepthMemory m{};
    m.sources = sources.data_ptr();
    m.mixes = mixes.data_ptr();
    m.rho = rho.data_ptr();
    m.lse = lse.data_ptr();
    m.norm_rho = norm_rho.data_ptr();
    m.keys = keys.data_ptr();
    if (backward_begun) {
      m.deltas = deltas.data_ptr();
      m.through_rho = through_rho.data_ptr();
      m.scratch = scratch.data_ptr();
      m.key_gradients = key_gradients.data_ptr();
      m.norm_gradients = norm_gradients.data_ptr();
    }
    return m;
  }

  void begin_backward(int64_t last) {
    backward_begun = true;
    due = last;
    backward = forward;
    backward.sites = last + 1;
    if (backward.sites != forward.sites)
      backward.plan = depth_plan(engine, reads, backward.sites, forward.sizes.tokens, type);
    const int64_t P = forward.sizes.tokens, H = reads.heads, D = reads.width;
    const auto& lengths = backward.plan.backward;
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    deltas = at::empty({backward.sites, P, H}, statistics());
    through_rho = at::empty({longest, P, H}, statistics());
    scratch =
        at::empty({engine.kernels->scratch_bytes(forward.sizes, backward.sites, longest)}, values().dtype(at::kByte));
    key_gradients = at::zeros({forward.sites, D}, statistics());
    norm_gradients = at::zeros({forward.sites, D}, statistics());
  }

  // Partial sums of a chunk's gradients go to the slots behind it: whoever saved one of those sources must not read it.
  void retire_slots(int64_t site) {
    int64_t first = 0;
    for (const int64_t length : backward.plan.backward) {
      const int64_t end = first + length;
      if (site == end - 1 && end < backward.sites) {
        for (int64_t i = end; i < end + length; ++i) versions[i].bump();
      }
      first = end;
    }
  }
};

namespace {

using Memory = DepthHistory::Memory;
using MemoryPointer = c10::intrusive_ptr<Memory>;

MemoryPointer memory_of(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Memory>(context->saved_data["memory"].toCapsule());
}

void keep(AutogradContext* context, const MemoryPointer& memory) {
  context->saved_data["memory"] =
      c10::IValue::make_capsule(c10::static_intrusive_pointer_cast<torch::CustomClassHolder>(memory));
}

// Empty, and there only to order the nodes.
Tensor new_token(const Memory& memory) { return at::empty({0}, memory.statistics()); }

struct Open : torch::autograd::Function<Open> {
  // parameters: queries, then gains, then norms, R of each.
  static Tensor forward(AutogradContext* context, at::TensorList parameters, const MemoryPointer& memory) {
    const int64_t R = memory->forward.sites;
    variable_list saved(parameters.begin(), parameters.begin() + 2 * R);
    context->save_for_backward(saved);
    keep(context, memory);
    return new_token(*memory);
  }

  static variable_list backward(AutogradContext* context, const variable_list&) {
    const MemoryPointer memory = memory_of(context);
    if (memory->due >= 0) misuse("a backward pass that left out sites", "let the loss depend on the reads");
    const auto saved = context->get_saved_variables();
    const int64_t R = memory->forward.sites;
    const auto rows = [&](const Tensor& gradients, int64_t from) {  // dw times the other factor of w, Eq. 8
      variable_list flat;
      for (int64_t r = 0; r < R; ++r) flat.push_back(saved[from + r].reshape({-1}));
      return gradients.mul(at::stack(flat)).to(memory->type);
    };
    memory->key_gradients[0].zero_();
    const Tensor dq = rows(memory->key_gradients, R), dg = rows(memory->key_gradients, 0);
    const Tensor dnorm = memory->norm_gradients.to(memory->type);
    variable_list result;
    for (int64_t r = 0; r < R; ++r) result.push_back(dq[r].view(saved[r].sizes()));
    for (int64_t r = 0; r < R; ++r) result.push_back(dg[r]);
    for (int64_t r = 0; r < R; ++r) result.push_back(dnorm[r]);
    result.emplace_back();
    return result;
  }
};

struct Step : torch::autograd::Function<Step> {
  static variable_list forward(AutogradContext* context, const Tensor& source, const Tensor& token,
                               const MemoryPointer& memory) {
    Memory& m = *memory;
    const int64_t site = m.next++;
    Tensor place = m.sources[site];
    if (source.data_ptr() != place.data_ptr()) place.copy_(source);
    Tensor normed = at::empty(place.sizes(), place.options());
    require_launched(
        "depth read forward",
        kernels::depth_forward(m.forward, m.pointers(), site,
                               {m.norms[site].const_data_ptr(), normed.data_ptr(), nullptr}, depth_queue(m.device)));
    keep(context, memory);
    context->saved_data["site"] = site;
    return {normed, new_token(m)};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const MemoryPointer memory = memory_of(context);
    Memory& m = *memory;
    const int64_t site = context->saved_data["site"].toInt();
    if (at::GradMode::is_enabled())
      misuse("a backward pass that is to be differentiated", "use --read composed for second derivatives");
    if (!m.backward_begun) m.begin_backward(site);
    if (site != m.due)
      misuse("a second backward pass", "run the forward pass again, or use --read composed to keep the graph");
    m.retire_slots(site);
    const Tensor dy = gradients[0].contiguous();
    Tensor ds = at::empty(dy.sizes(), dy.options());
    require_launched("depth read backward",
                     kernels::depth_backward(m.backward, m.pointers(), site,
                                             {dy.const_data_ptr(), m.norms[site].const_data_ptr(), ds.data_ptr()},
                                             depth_queue(m.device)));
    --m.due;
    return {ds, new_token(m), Tensor()};
  }
};

void require_parameters(const char* name, const std::vector<Tensor>& all, const Memory& m) {
  if (static_cast<int64_t>(all.size()) != m.forward.sites) {
    throw std::invalid_argument(describe({"depth history", name, "one for each of " + std::to_string(m.forward.sites),
                                          std::to_string(all.size()), "pass one for every site"}));
  }
  for (const Tensor& one : all) {
    require_shape("depth history", name, one.reshape({-1}), {m.reads.width});
    if (one.scalar_type() == m.type && one.device() == m.device && one.is_contiguous()) continue;
    throw std::invalid_argument(describe({"depth history", name, c10::str("contiguous ", m.type, " on ", m.device),
                                          c10::str(one.scalar_type(), " on ", one.device()), "convert it"}));
  }
}

}  // namespace

DepthHistory::DepthHistory(const DepthEngine& engine, const DepthReads& reads, int64_t tokens, at::ScalarType type,
                           at::Device device)
    : memory_(c10::make_intrusive<Memory>()) {
  Memory& m = *memory_;
  m.reads = reads;
  m.engine = engine;
  m.type = type;
  m.device = device;
  m.forward = {engine.kernels, depth_sizes(reads, tokens, type), reads.sites,
               depth_plan(engine, reads, reads.sites, tokens, type)};
  const int64_t R = reads.sites, D = reads.width;
  at::NoGradGuard no_gradient;
  m.sources = at::empty({R, tokens, D}, m.values());
  m.mixes = at::empty({R, tokens, D}, m.values());
  m.rho = at::empty({R, tokens}, m.statistics());
  m.norm_rho = at::empty({R, tokens}, m.statistics());
  m.lse = at::empty({R, tokens, reads.heads}, m.statistics());
  for (int64_t i = 0; i < R; ++i) m.versions.emplace_back(/*version=*/0u);
}

DepthHistory::~DepthHistory() = default;
DepthHistory::DepthHistory(DepthHistory&&) noexcept = default;

void DepthHistory::open(const std::vector<Tensor>& queries, const std::vector<Tensor>& gains,
                        const std::vector<Tensor>& norms) {
  Memory& m = *memory_;
  if (m.opened) misuse("opened twice", "make a new history for a new pass");
  require_parameters("queries", queries, m);
  require_parameters("gains", gains, m);
  require_parameters("norms", norms, m);
  m.opened = true;
  {
    at::NoGradGuard no_gradient;
    variable_list flat;
    for (const Tensor& q : queries) flat.push_back(q.reshape({-1}));
    const auto wide = compute_type(m.type);
    m.keys = at::stack(flat).to(wide).mul_(at::stack(gains).to(wide));
    // One source leaves the first site no choice: with a key of zero its read is exact, and so are its gradients.
    m.keys[0].zero_();
    for (const Tensor& weight : norms) m.norms.push_back(weight.detach());
  }
  variable_list all(queries);
  all.insert(all.end(), gains.begin(), gains.end());
  all.insert(all.end(), norms.begin(), norms.end());
  token_ = Open::apply(at::TensorList(all), memory_);
}

Tensor DepthHistory::slot(int64_t index) const {
  const Memory& m = *memory_;
  const int64_t size = m.forward.sizes.values();
  Tensor slot = at::empty({0}, m.values());
  slot.set_(m.sources.storage(), m.sources.storage_offset() + index * size, {m.forward.sizes.tokens, m.reads.width},
            {m.reads.width, 1});
  torch::autograd::impl::set_version_counter(slot, m.versions[index]);
  return slot;
}

Tensor DepthHistory::step(const Tensor& source) {
  const Memory& m = *memory_;
  if (!m.opened) misuse("a step before open()", "open the history first");
  if (m.backward_begun) misuse("a step after the backward pass has begun", "make a new history for a new pass");
  if (m.next == m.forward.sites)
    misuse("more than " + std::to_string(m.forward.sites) + " steps", "make a history of more sites");
  require_shape("depth history", "source", source, {m.forward.sizes.tokens, m.reads.width});
  if (source.scalar_type() != m.type || source.device() != m.device) {
    throw std::invalid_argument(describe({"depth history", "source", c10::str(m.type, " on ", m.device),
                                          c10::str(source.scalar_type(), " on ", source.device()), "convert it"}));
  }
  const auto results = Step::apply(source, token_, memory_);
  token_ = results[1];
  return results[0];
}

Tensor DepthHistory::weights(int64_t site) const {
  const Memory& m = *memory_;
  if (site >= m.next || m.backward_begun)
    misuse("weights of a site not read", "ask after its step and before backward");
  at::NoGradGuard no_gradient;
  const int64_t P = m.forward.sizes.tokens, H = m.reads.heads;
  Tensor weights = at::empty({site + 1, P, H}, m.statistics());
  const Tensor matrix = head_matrix(m.keys[site], H);
  for (int64_t i = 0; i <= site; ++i) {
    const Tensor logits = m.sources[i].to(matrix.scalar_type()).mm(matrix).mul_(m.rho[i].unsqueeze(1));
    weights[i].copy_(logits.sub_(m.lse[site]).clamp_max_(0).exp_());
  }
  return weights;
}

Tensor DepthHistory::mix(int64_t site) const {
  const Memory& m = *memory_;
  if (site >= m.next || m.backward_begun)
    misuse("the mix of a site not read", "ask after its step and before backward");
  return m.mixes[site].clone();
}

}  // namespace mhar::ops
