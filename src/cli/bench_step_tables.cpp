#include "cli/bench_step_tables.h"

#include <fmt/format.h>

#include <functional>

#include "bench/read.h"
#include "train/device.h"

namespace mhar::cli {
namespace {

using Cell = std::optional<double>;

// One line: what it is, and a cell a scale.
template <typename Of>
std::string line(const std::string& name, const char* format, size_t columns, const Of& of) {
  std::string text = "| " + name + " |";
  for (size_t i = 0; i < columns; ++i) {
    const Cell cell = of(i);
    text += cell ? fmt::format(fmt::runtime(std::string(" ") + format + " |"), *cell) : " not given |";
  }
  return text + "\n";
}

double reads_ms(const RunConfig& config, const bench::ReadShape& shape, const bench::Effort& effort) {
  bench::ReadRequest request;
  request.shape = shape;
  request.dtype = config.precision;
  request.device = choose_device(config.device);
  request.effort = effort;
  return bench::bench_read(request).passes.total.median;
}

// A shape of bench/shapes.h with the dimensions that were given.
bench::ReadShape shape_of(const RunConfig& config, const std::string& scale) {
  bench::ReadShape shape = bench::read_shape(scale);
  const auto take = [](int64_t given, int64_t& value) {
    if (given > 0) value = given;
  };
  take(config.width, shape.width);
  take(config.routing_heads > 0 ? config.routing_heads : config.kv_heads, shape.heads);
  if (config.layers > 0) shape.sites = 2 * config.layers + (shape.block > 0 ? 0 : 1);
  return shape;
}

}  // namespace

const std::vector<PublishedCost>& published_costs() {
  static const std::vector<PublishedCost> table = {
      {"100m", 113900, 0.31, 0.54, 0.88, 41.5, 68.8, 52.4, 42.0},
      {"350m", 45000, 0.16, 0.32, 0.71, 19.4, 70.9, 40.1, 20.0},
      {"1b", 19700, {}, 0.23, 0.55, 19.0, {}, 47.5, 20.1},
  };
  return table;
}

const std::vector<PublishedReads>& published_reads() {
  static const std::vector<PublishedReads> table = {
      {"100m", 2, 30.2, 5.7}, {"350m", 1, 53.1, 11.4}, {"1b", 1, 153.2, 42.4}, {"8b-delta", 0, 651, 323}};
  return table;
}

ReadRow measure_reads(const RunConfig& config, const PublishedReads& published, const bench::Effort& effort) {
  bench::ReadShape shape = shape_of(config, published.scale);
  const bool own = published.microbatch > 0;
  const Scale& scale = find_scale(own ? published.scale : "8b");
  const int64_t windows = config.microbatch > 0 ? config.microbatch : scale.microbatch;
  const int64_t length = config.sequence > 0 ? config.sequence : scale.model.sequence;
  shape.tokens = windows * length;
  const double full = reads_ms(config, shape, effort);
  if (!own || published.microbatch == windows) return {published, full, full};
  shape.tokens = published.microbatch * length;
  return {published, reads_ms(config, shape, effort), full};
}

std::string cost_table(const std::vector<StepReport>& reports) {
  const auto& published = published_costs();
  const size_t columns = reports.size();
  std::string text = "\nTables 4 and 8, published (H100) and ours\n\n| |";
  for (const auto& one : published) text += " " + one.scale + " |";
  text += "\n| --- |";
  for (size_t i = 0; i < columns; ++i) text += " --- |";
  text += "\n";
  const auto add = [&](const std::string& name, const char* format, const std::function<Cell(size_t)>& of) {
    text += line(name, format, columns, of);
  };
  add("published: standard, tokens/s", "{:.0f}", [&](size_t i) { return Cell(published[i].standard_tokens_per_s); });
  add("published: mhar eager, times that", "{:.2f}", [&](size_t i) { return published[i].eager; });
  add("published: mhar compiled", "{:.2f}", [&](size_t i) { return published[i].compiled; });
  add("published: mhar fused", "{:.2f}", [&](size_t i) { return published[i].fused; });
  const auto& names = reports.front().designs;
  for (size_t d = 0; d < names.size(); ++d) {
    const std::string ours = "ours: " + names[d].config.design;
    add(ours + ", tokens/s", "{:.0f}", [&](size_t i) { return Cell(reports[i].designs[d].tokens_per_s()); });
    if (d == 0) continue;
    add(ours + ", times ours: " + names[0].config.design, "{:.2f}",
        [&](size_t i) { return Cell(reports[i].designs[0].times.ms.median / reports[i].designs[d].times.ms.median); });
  }
  add("published: standard, peak GB", "{:.1f}", [&](size_t i) { return Cell(published[i].standard_gb); });
  add("published: mhar eager, peak GB", "{:.1f}", [&](size_t i) { return published[i].eager_gb; });
  add("published: mhar compiled, peak GB", "{:.1f}", [&](size_t i) { return published[i].compiled_gb; });
  add("published: mhar fused, peak GB", "{:.1f}", [&](size_t i) { return published[i].fused_gb; });
  if (!reports.front().device.is_cuda()) return text;
  for (size_t d = 0; d < names.size(); ++d) {
    add("ours: " + names[d].config.design + ", peak GB", "{:.1f}",
        [&](size_t i) { return Cell(static_cast<double>(reports[i].designs[d].times.memory.peak) * 1e-9); });
  }
  return text;
}

std::string reads_table(const std::vector<ReadRow>& rows) {
  std::string text = "\nTable 5, depth reads of a microbatch in ms, published (H100) and ours\n\n| |";
  for (const ReadRow& row : rows) {
    text += " " + row.published.scale;
    if (row.published.microbatch > 0) text += fmt::format(", {} windows", row.published.microbatch);
    text += " |";
  }
  text += "\n| --- |";
  for (size_t i = 0; i < rows.size(); ++i) text += " --- |";
  text += "\n";
  const auto add = [&](const char* name, double (*of)(const ReadRow&)) {
    text += line(name, "{:.3f}", rows.size(), [&](size_t i) { return Cell(of(rows[i])); });
  };
  add("published: compiled", [](const ReadRow& row) { return row.published.compiled_ms; });
  add("published: fused", [](const ReadRow& row) { return row.published.fused_ms; });
  add("ours", [](const ReadRow& row) { return row.ms; });
  add("ours, microbatch of the table of scales", [](const ReadRow& row) { return row.full_ms; });
  return text;
}

}  // namespace mhar::cli
