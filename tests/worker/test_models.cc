#include "tests/worker/test_models.h"

#include "absl/strings/str_cat.h"
#include "job/yaml/yaml.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

// Skips over several layers, as U-Net has them: two values cross most cuts, and three some.
constexpr char kUNet[] = R"(
  layers:
    - input: {image: {u8: [8, 8, 3]}, label: {i32: []}}
    - image: {of: image}
    - conv2d: {channels: 6, kernel: 3, padding: 1, name: outer}
    - relu
    - max_pool: {kernel: 2, stride: 2}
    - conv2d: {channels: 8, kernel: 3, padding: 1, name: inner}
    - batch_norm
    - relu: {name: inner_out}
    - conv2d: {channels: 8, kernel: 3, padding: 1, name: bottom}
    - relu: {name: bottom_out}
    - concat: {of: [bottom_out, inner_out], name: up}
    - conv2d: {channels: 4, kernel: 1, name: mix}
    - group_norm: {groups: 2, name: mixed}
    - max_pool: {of: outer, kernel: 2, stride: 2, name: outer_small}
    - concat: {of: [mixed, outer_small], name: all}
    - flatten
    - linear: {outputs: 10}
    - cross_entropy: {targets: label}
)";

// Four branches of one value, as in GoogLeNet.
constexpr char kInception[] = R"(
  layers:
    - input: {image: {u8: [8, 8, 3]}, label: {i32: []}}
    - image: {of: image}
    - conv2d: {channels: 8, kernel: 3, padding: 1, name: stem}
    - relu: {name: x}
    - conv2d: {of: x, channels: 4, kernel: 1, name: one}
    - conv2d: {of: x, channels: 3, kernel: 1, name: three_in}
    - relu
    - conv2d: {channels: 6, kernel: 3, padding: 1, name: three}
    - conv2d: {of: x, channels: 2, kernel: 1, name: five_in}
    - conv2d: {channels: 4, kernel: 5, padding: 2, name: five}
    - max_pool: {of: x, kernel: 3, stride: 1, padding: 1, name: pooled}
    - conv2d: {channels: 2, kernel: 1, name: pool}
    - concat: {of: [one, three, five, pool], name: together}
    - lrn: {size: 3}
    - dropout: {probability: 0.25}
    - avg_pool: {global: true}
    - flatten
    - linear: {outputs: 10}
    - cross_entropy: {targets: label, label_smoothing: 0.1}
)";

// Two towers that meet: the second's data is read in the middle of the pipeline.
constexpr char kTowers[] = R"(
  layers:
    - input: {left: {f32: [6]}, right: {f32: [5]}, wanted: {f32: [4]}}
    - linear: {of: left, outputs: 7, name: left_in}
    - tanh: {name: left_out}
    - linear: {of: right, outputs: 7, name: right_in}
    - silu: {name: right_out}
    - mul: {of: [left_out, right_out], name: product}
    - add: {of: [product, left_out, right_out], name: sum}
    - layer_norm: {width: 7}
    - linear: {outputs: 9}
    - gelu
    - linear: {outputs: 4, name: answer}
    - mse: {of: [answer, wanted]}
)";

// Branches of a transformer that are fused: in the two layouts of weights, with masks, two in one layer, and with a value
// that is also read behind them.
constexpr char kTransformer[] = R"(
  layers:
    - input: {tokens: {i32: [6]}, targets: {i32: [6]}}
    - embedding: {of: tokens, vocabulary: 11, width: 8, name: table}
    - repeat: {count: 2, name: h, layers: [
        {block: {name: attention, layers: [{residual: {layers: [
          {layer_norm: {width: 8}}, {linear: {outputs: 24}}, {attention: {heads: 2, causal: true}},
          {linear: {outputs: 8}}, {dropout: {probability: 0.25}}]}}]}},
        {block: {name: mlp, layers: [{residual: {layers: [
          {layer_norm: {width: 8}}, {linear: {outputs: 12, layout: inputs_first}},
          {gelu: {approximate: tanh}}, {linear: {outputs: 8, layout: inputs_first}}]}}]}}]}
    - block: {name: both, layers: [
        {residual: {layers: [{layer_norm: {width: 8}}, {linear: {outputs: 24}},
          {attention: {heads: 4, causal: true}}, {linear: {outputs: 8}}]}},
        {residual: {layers: [{layer_norm: {width: 8}}, {linear: {outputs: 16}},
          {gelu: {approximate: tanh}}, {linear: {outputs: 8}}, {dropout: {probability: 0.5}}]}}]}
    - concat: {of: [both, h]}
    - linear: {outputs: 11, name: logits}
    - cross_entropy: {targets: targets}
)";

// Branches that are not: the exact GELU, attention to all time steps, another epsilon, and one that may be cut.
constexpr char kOtherTransformer[] = R"(
  layers:
    - input: {tokens: {i32: [6]}, targets: {i32: [6]}}
    - embedding: {of: tokens, vocabulary: 11, width: 8, name: table}
    - block: {name: exact, layers: [{residual: {layers: [
        {layer_norm: {width: 8}}, {linear: {outputs: 12}}, gelu, {linear: {outputs: 8}}]}}]}
    - block: {name: full, layers: [{residual: {layers: [
        {layer_norm: {width: 8}}, {linear: {outputs: 24}}, {attention: {heads: 2}},
        {linear: {outputs: 8}}]}}]}
    - block: {name: other, layers: [{residual: {layers: [
        {layer_norm: {width: 8, epsilon: 1e-6}}, {linear: {outputs: 12}},
        {gelu: {approximate: tanh}}, {linear: {outputs: 8}}]}}]}
    - residual: {layers: [{layer_norm: {width: 8}}, {linear: {outputs: 12}},
        {gelu: {approximate: tanh}}, {linear: {outputs: 8}}]}
    - linear: {outputs: 11, name: logits}
    - cross_entropy: {targets: targets}
)";

// Microbatches differ in how many of their targets count: of two samples often one, sometimes none.
constexpr char kIgnoring[] = R"(
  layers:
    - input: {features: {f32: [6]}, label: {i32: []}}
    - linear: {of: features, outputs: 7}
    - relu
    - linear: {outputs: 7}
    - dropout: {probability: 0.25}
    - linear: {outputs: 5}
    - tanh
    - linear: {outputs: 3}
    - cross_entropy: {targets: label, ignore: 1, label_smoothing: 0.1}
)";

constexpr TestModel kModels[] = {
    {"cifar_resnet", "\n  cifar_resnet: {depth: 14, width: 4, image: {size: 8, classes: 10}}\n"},
    {"vgg", "\n  vgg: {depth: 11, batch_norm: true, hidden: 16, image: {size: 32, classes: 4}}\n"},
    {"lstm_lm", "\n  lstm_lm: {layers: 3, hidden: 6, embedding: 5, context: 4, vocabulary: 17}\n"},
    {"lstm_lm_carried",
     "\n  lstm_lm: {layers: 2, hidden: 6, context: 4, vocabulary: 17, carried: true}\n"},
    {"awd_lm",
     "\n  awd_lm: {hidden: 9, embedding: 6, context: 5, vocabulary: 19, tied: false, carried: "
     "true}\n"},
    {"gnmt", "\n  gnmt: {layers: 6, hidden: 5, vocabulary: 13, source_time: 6, target_time: 4}\n"},
    {"gnmt_shared",
     "\n  gnmt: {layers: 4, hidden: 4, vocabulary: 11, source_time: 3, target_time: 5, "
     "shared_embedding: true}\n"},
    {"s2vt",
     "\n  s2vt: {vocabulary: 15, frames: 4, words: 3, features: 7, hidden: 6, embedding: 5}\n"},
    {"llama",
     "\n  llama: {layers: 2, width: 8, heads: 4, key_value_heads: 2, head_size: 6, hidden: 10, "
     "context: "
     "5, vocabulary: 19, window: 3, rope: {scaling: llama3, factor: 2, original_context: 4}}\n"},
    {"qwen3",
     "\n  llama: {layers: 1, width: 8, heads: 2, hidden: 6, context: 4, vocabulary: 11, qk_norm: "
     "true, "
     "qkv_bias: true, tied_head: true}\n  untie: true\n"},
    {"bert",
     "\n  bert: {layers: 1, width: 8, heads: 2, hidden: 6, context: 4, positions: 6, vocabulary: "
     "11, "
     "segments: 3}\n  untie: true\n"},
    {"bert_classifier",
     "\n  bert: {layers: 2, width: 8, heads: 2, hidden: 6, context: 4, positions: 4, vocabulary: "
     "11, "
     "head: classification, classes: 3}\n"},
    {"unet", kUNet},
    {"inception", kInception},
    {"towers", kTowers},
    {"ignoring", kIgnoring},
    {"transformer", kTransformer},
    {"other_transformer", kOtherTransformer},
};

}  // namespace

absl::Span<const TestModel> TestModels() { return kModels; }

v1::JobSpec JobOf(const TestModel& model, const std::string& method) {
  const absl::StatusOr<v1::JobSpec> spec =
      ParseJobYaml(absl::StrCat("name: model\nmodel:", model.yaml, "\ndata: {", model.data, R"(}
training:
  steps: 3
  batch: 8
  microbatches: 4
  optimizer: {sgd: {learning_rate: 0.01, momentum: 0.9, nesterov: true}}
  seed: 3
validation: {every_steps: 2, batches: 1}
pipeline: {method: )",
                                method, "}\n"),
                   "job.yaml");
  EXPECT_THAT(spec, IsOk());
  return spec.value_or(v1::JobSpec());
}

}  // namespace penstock
