#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "model/names.h"
#include "train/device.h"
#include "train/metrics.h"
#include "train/model_folder.h"
#include "train/small_run.h"
#include "train/tensor_io.h"

namespace mhar {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no InputError";
}

// A saved model whose tensors `change` may alter before they are written.
void write_model(const fs::path& folder, const std::string& design,
                 const std::function<void(std::vector<std::pair<std::string, at::Tensor>>&)>& change) {
  Decoder model(test::small_config(design).model(), at::kFloat, at::kCPU);
  model.parameters().initialise(1);
  fs::create_directories(folder);
  save_model(folder, model, {});
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (size_t i = 0; i < model.parameters().specs().size(); ++i) {
    tensors.emplace_back(model.parameters().specs()[i].name, model.parameters().view(i).detach());
  }
  change(tensors);
  TensorWriter writer;
  for (const auto& [name, tensor] : tensors) writer.add(name, tensor);
  writer.write(folder / "model.safetensors", {});
}

std::string load_message(const std::function<void(std::vector<std::pair<std::string, at::Tensor>>&)>& change) {
  const TemporaryFolder folder;
  write_model(folder.path() / "m", "mhar", change);
  return message_of([&] { load_model(folder.path() / "m", at::kFloat, at::kCPU); });
}

TEST(ModelFolder, RoundTripKeepsEveryBit) {
  for (const auto& design : test::design_names()) {
    const TemporaryFolder folder;
    Decoder model(test::small_config(design).model(), at::kBFloat16, at::kCPU);
    model.parameters().initialise(3);
    save_model(folder.path(), model, {});
    const auto again = load_model(folder.path(), at::ScalarType::Undefined, at::kCPU);
    EXPECT_EQ(again->parameters().type(), at::kBFloat16);
    EXPECT_EQ(again->config().design, design);
    EXPECT_TRUE(at::equal(model.parameters().flat(), again->parameters().flat()));
  }
}

TEST(ModelFolder, NamesMissingUnknownAndMisshapenTensors) {
  EXPECT_THAT(load_message([](auto& t) { t.erase(t.begin() + 3); }),
              AllOf(HasSubstr("wanted all of the model's"), HasSubstr("k_proj")));
  EXPECT_THAT(load_message([](auto& t) { t.emplace_back("model.layers.0.self_attn.q_proj.bias", at::zeros({32})); }),
              HasSubstr("unknown model.layers.0.self_attn.q_proj.bias"));
  EXPECT_THAT(load_message([](auto& t) { t[1].second = at::ones({31}); }),
              AllOf(HasSubstr(names::kAttentionNorm), HasSubstr("[32]"), HasSubstr("[31]")));
}

// Field case 66: a head beside the tie flag is accepted only when it is the embedding.
TEST(ModelFolder, AStoredTiedHeadMustBeTheEmbedding) {
  EXPECT_EQ(load_message([](auto& t) { t.emplace_back(names::kHead, t[0].second.clone()); }), "no InputError");
  EXPECT_THAT(load_message([](auto& t) { t.emplace_back(names::kHead, t[0].second + 1); }),
              AllOf(HasSubstr(names::kHead), HasSubstr("tie_word_embeddings")));
}

TEST(Device, SaysWhatIsThere) {
  EXPECT_EQ(choose_device("cpu"), at::Device(at::kCPU));
  EXPECT_THAT(message_of([] { choose_device("tpu"); }), AllOf(HasSubstr("--device"), HasSubstr("'tpu'")));
  EXPECT_THAT(message_of([] { choose_device("cuda:99"); }), HasSubstr("--device"));
}

TEST(Metrics, ResumingDropsLaterAndBrokenLines) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "metrics.jsonl") << "{\"event\":\"start\"}\n{\"step\":\"x\"}\n{\"event\":\"step\","
                                                    "\"step\":1}\n{\"event\":\"step\",\"step\":2}\n{\"event\":\"st";
  {
    Metrics metrics(folder.path(), 1);
    EXPECT_FALSE(metrics.finished());
    metrics.write({{"event", "step"}, {"step", 2}});
  }
  EXPECT_EQ(read_text(folder.path() / "metrics.jsonl", "test"),
            "{\"event\":\"start\"}\n{\"event\":\"step\",\"step\":1}\n{\"event\":\"step\",\"step\":2}\n");
}

TEST(Metrics, KnowsAFinishedRun) {
  const TemporaryFolder folder;
  Metrics(folder.path(), -1).write({{"event", "done"}, {"step", 3}});
  EXPECT_TRUE(Metrics(folder.path(), 3).finished());
  EXPECT_FALSE(Metrics(folder.path(), 2).finished());
}

TEST(Metrics, DurationsReadWell) {
  EXPECT_EQ(duration_text(11.6), "12s");
  EXPECT_EQ(duration_text(190), "3m 10s");
  EXPECT_EQ(duration_text(3725), "1h 02m");
}

TEST(State, TailMeanAndRoundTrip) {
  const TemporaryFolder folder;
  TrainState state;
  EXPECT_TRUE(std::isnan(state.validation_tail_mean()));
  state.config = test::small_config("mhar");
  state.validations = {{1, 3.287}, {2, 3.336}};
  state.shards = {"a-00000.npy"};
  state.step = 7;
  write_state(folder.path(), state);
  const TrainState again = read_state(folder.path());
  EXPECT_NEAR(again.validation_tail_mean(), 3.3115, 1e-9);
  EXPECT_EQ(again.shards, state.shards);
  EXPECT_EQ(again.step, 7);
  EXPECT_EQ(again.config.width, 32);
}

TEST(State, RefusesForeignAndBrokenFiles) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& text) {
    std::ofstream(folder.path() / "state.json") << text;
    return message_of([&] { read_state(folder.path()); });
  };
  EXPECT_THAT(message("{}"), HasSubstr("wanted mhar-state version 1"));
  EXPECT_THAT(message("{\"format\":\"mhar-state\",\"version\":2}"), HasSubstr("got version 2"));
  EXPECT_THAT(message("{\"format\":\"mhar-state\",\"version\":1}"), HasSubstr("every field"));
  EXPECT_THAT(message("not json"), HasSubstr("something else"));
}

TEST(State, RefusesNumbersThatCannotBe) {
  const TemporaryFolder folder;
  TrainState state;
  state.config = test::small_config("mhar");
  const auto message = [&](const char* key, const nlohmann::json& value) {
    write_state(folder.path(), state);
    auto json = nlohmann::json::parse(read_text(folder.path() / "state.json", "test"));
    json[key] = value;
    std::ofstream(folder.path() / "state.json") << json;
    return message_of([&] { read_state(folder.path()); });
  };
  EXPECT_EQ(message("step", 1), "no InputError");
  for (const char* key : {"step", "tokens", "next_batch"}) {
    for (const nlohmann::json& value : {nlohmann::json(-1), {1.5}, {"1"}, {1e30}, {UINT64_MAX}}) {
      EXPECT_THAT(message(key, value), AllOf(HasSubstr("state.json: "), HasSubstr(key), HasSubstr("whole number")));
    }
  }
  EXPECT_THAT(message("step", state.config.steps + 1), HasSubstr(std::to_string(state.config.steps)));
}

TEST(Optimizer, NamesTheTensorThatDoesNotBelong) {
  const TemporaryFolder folder;
  RunConfig config = test::small_config("standard");
  Trainer trainer(config, at::kCPU, test::letter_source(config));
  trainer.save(folder.path());
  config.design = "mhar";
  Trainer other(config, at::kCPU, test::letter_source(config));
  EXPECT_THAT(message_of([&] {
                Optimizer optimizer(other.model().parameters(), config);
                optimizer.load(checkpoint::SafetensorsFile(folder.path() / "optimizer.safetensors"));
              }),
              AllOf(HasSubstr("optimizer.safetensors"), HasSubstr("_res_")));
}

}  // namespace
}  // namespace mhar
