#include <nlohmann/json.hpp>

#include "base/error.h"
#include "ops/helpers.h"
#include "residual/design.h"

namespace mhar::residual {
namespace {

using namespace mhar::testing;

constexpr Shape kShape{.width = 64, .layers = 3, .heads = 0, .kv_heads = 4};

TEST(Registry, KnowsTheDesigns) {
  std::vector<std::string> names, modes;
  for (const Entry& entry : registry()) {
    names.push_back(entry.name), modes.push_back(entry.attnres_mode);
    EXPECT_FALSE(entry.help.empty());
    EXPECT_EQ(find(entry.name).name, entry.name);
    EXPECT_EQ(find_mode(entry.attnres_mode).name, entry.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"standard", "single", "mhar"}));
  EXPECT_EQ(modes, (std::vector<std::string>{"", "full", "full_mh"}));
}

TEST(Registry, UnknownNamesListWhatThereIs) {
  const auto design = message_of<InputError>([] { find("mahr"); });
  for (const char* part : {"--design", "standard, single, mhar", "'mahr'", "did you mean 'mhar'?"}) {
    EXPECT_NE(design.find(part), std::string::npos) << design;
  }
  const auto mode = message_of<InputError>([] { find_mode("half"); });
  for (const char* part : {"attnres_mode", "full, full_mh", "'half'"})
    EXPECT_NE(mode.find(part), std::string::npos) << mode;
}

TEST(Registry, SitesHaveNames) {
  EXPECT_EQ(site_name(0, 7), "layer 0 attention");
  EXPECT_EQ(site_name(3, 7), "layer 1 mlp");
  EXPECT_EQ(site_name(5, 7), "layer 2 mlp");
  EXPECT_EQ(site_name(6, 7), "final");
}

TEST(Designs, ParametersHaveThePublishedNames) {
  EXPECT_TRUE(find("standard").make(kShape)->parameters().empty());
  for (const char* name : {"single", "mhar"}) {
    const auto specs = find(name).make(kShape)->parameters();
    std::vector<std::string> names;
    for (const ParameterSpec& spec : specs) {
      names.push_back(spec.name);
      const bool query = spec.name.ends_with("proj.weight");
      EXPECT_EQ(spec.shape, query ? (std::vector<int64_t>{1, 64}) : (std::vector<int64_t>{64}));
      EXPECT_EQ(spec.initial.pattern, query ? Initial::Pattern::zeros : Initial::Pattern::ones);
      EXPECT_EQ(spec.initial.deviation, 0.0);
      // A first site has nothing to choose between; its gain moves by decay.
      EXPECT_EQ(spec.can_move, spec.name != "model.layers.0.attn_res_proj.weight");
    }
    const std::vector<std::string> wanted{"model.layers.0.attn_res_proj.weight", "model.layers.0.attn_res_norm.weight",
                                          "model.layers.0.mlp_res_proj.weight",  "model.layers.0.mlp_res_norm.weight",
                                          "model.layers.1.attn_res_proj.weight", "model.layers.1.attn_res_norm.weight",
                                          "model.layers.1.mlp_res_proj.weight",  "model.layers.1.mlp_res_norm.weight",
                                          "model.layers.2.attn_res_proj.weight", "model.layers.2.attn_res_norm.weight",
                                          "model.layers.2.mlp_res_proj.weight",  "model.layers.2.mlp_res_norm.weight",
                                          "model.final_res_proj.weight",         "model.final_res_norm.weight"};
    EXPECT_EQ(names, wanted);
  }
}

TEST(Designs, HeadsHaveDefaults) {
  Shape asked = kShape;
  asked.heads = 8;
  EXPECT_EQ(find("standard").make(asked)->heads(), 0);
  EXPECT_EQ(find("single").make(asked)->heads(), 1) << "single is one head whatever is asked";
  EXPECT_EQ(find("mhar").make(kShape)->heads(), 4) << "key/value heads";
  EXPECT_EQ(find("mhar").make(asked)->heads(), 8);
  asked.heads = 3;
  const auto message = message_of<InputError>([&] { find("mhar").make(asked); });
  for (const char* part : {"--routing-heads", "64", "got 3"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Designs, DescribeThemselvesForTheCheckpoint) {
  nlohmann::json standard = nlohmann::json::object(), many = standard, one = standard;
  find("standard").make(kShape)->describe(standard);
  find("mhar").make(kShape)->describe(many);
  find("single").make(kShape)->describe(one);
  EXPECT_TRUE(standard.empty());
  EXPECT_EQ(many, (nlohmann::json{{"attnres_mode", "full_mh"}, {"attnres_num_heads", 4}}));
  EXPECT_EQ(one, (nlohmann::json{{"attnres_mode", "full"}, {"attnres_num_heads", 1}}));
}

TEST(Designs, CostsGrowAsTheyShould) {
  const auto standard = find("standard").make(kShape), one = find("single").make(kShape),
             many = find("mhar").make(kShape);
  EXPECT_EQ(standard->kept_bytes(10, 2), 7 * 10 * 64 * 2);
  EXPECT_EQ(standard->read_flops(10), 6 * 10 * 64);
  EXPECT_EQ(many->read_flops(10), 28 * 10 * 64 * 4) << "28 pairs of site and source";
  EXPECT_EQ(many->read_flops(10), one->read_flops(10)) << "heads cost nothing";
  for (const int64_t element : {2, 4}) {
    EXPECT_GT(one->kept_bytes(10, element), standard->kept_bytes(10, element));
    EXPECT_EQ(many->kept_bytes(10, element) - one->kept_bytes(10, element), 7 * 10 * 3 * 4);  // lse of three more heads
  }
  EXPECT_GE(many->kept_bytes(10, 4), many->kept_bytes(10, 2));
  for (const auto* design : {standard.get(), one.get(), many.get()}) {
    EXPECT_EQ(design->kept_bytes(30, 2), 3 * design->kept_bytes(10, 2));
    EXPECT_EQ(design->read_flops(0), 0);
  }
}

}  // namespace
}  // namespace mhar::residual
