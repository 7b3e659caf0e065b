#include "job/model_families.h"

#include "absl/strings/str_cat.h"
#include "job/model_graph.h"
#include "model/families/bert.h"
#include "model/families/images.h"
#include "model/families/llama.h"
#include "model/families/sequences.h"

namespace penstock {
namespace {

// What a job leaves out stays as the family has it.
ImageConfig ImageOf(const v1::ImageSpec& spec, ImageConfig image) {
  if (spec.has_size()) image.size = spec.size();
  if (spec.has_classes()) image.classes = spec.classes();
  if (!spec.mean().empty()) image.mean.assign(spec.mean().begin(), spec.mean().end());
  if (!spec.deviation().empty()) {
    image.deviation.assign(spec.deviation().begin(), spec.deviation().end());
  }
  image.label_smoothing = spec.label_smoothing();
  return image;
}

absl::StatusOr<ModelGraph> BuildVggOf(const v1::ModelSpec& model) {
  const v1::VggSpec& spec = model.vgg();
  return BuildVgg({.depth = spec.depth(),
                   .batch_norm = spec.batch_norm(),
                   .dropout = spec.dropout(),
                   .hidden = spec.hidden(),
                   .image = ImageOf(spec.image(), VggConfig().image)});
}

absl::StatusOr<ModelGraph> BuildAlexNetOf(const v1::ModelSpec& model) {
  const v1::AlexNetSpec& spec = model.alexnet();
  return BuildAlexNet({.variant = spec.variant(),
                       .dropout = spec.dropout(),
                       .hidden = spec.hidden(),
                       .image = ImageOf(spec.image(), AlexNetConfig().image)});
}

absl::StatusOr<ModelGraph> BuildResNetOf(const v1::ModelSpec& model) {
  const v1::ResNetSpec& spec = model.resnet();
  return BuildResNet({.depth = spec.depth(), .image = ImageOf(spec.image(), ResNetConfig().image)});
}

absl::StatusOr<ModelGraph> BuildCifarResNetOf(const v1::ModelSpec& model) {
  const v1::CifarResNetSpec& spec = model.cifar_resnet();
  return BuildCifarResNet({.depth = spec.depth(),
                           .width = spec.width(),
                           .image = ImageOf(spec.image(), CifarResNetConfig().image)});
}

absl::StatusOr<ModelGraph> BuildLstmLmOf(const v1::ModelSpec& model) {
  const v1::LstmLmSpec& spec = model.lstm_lm();
  return BuildLstmLm({.layers = spec.layers(),
                      .hidden = spec.hidden(),
                      .embedding = spec.embedding(),
                      .context = spec.context(),
                      .vocabulary = spec.vocabulary(),
                      .dropout = spec.dropout(),
                      .tied = spec.tied(),
                      .carried = spec.carried()});
}

absl::StatusOr<ModelGraph> BuildAwdLmOf(const v1::ModelSpec& model) {
  const v1::AwdLmSpec& spec = model.awd_lm();
  return BuildAwdLm({.layers = spec.layers(),
                     .hidden = spec.hidden(),
                     .embedding = spec.embedding(),
                     .context = spec.context(),
                     .vocabulary = spec.vocabulary(),
                     .input_dropout = spec.input_dropout(),
                     .hidden_dropout = spec.hidden_dropout(),
                     .output_dropout = spec.output_dropout(),
                     .row_dropout = spec.row_dropout(),
                     .weight_dropout = spec.weight_dropout(),
                     .tied = spec.tied(),
                     .carried = spec.carried()});
}

absl::StatusOr<ModelGraph> BuildGnmtOf(const v1::ModelSpec& model) {
  const v1::GnmtSpec& spec = model.gnmt();
  return BuildGnmt({.layers = spec.layers(),
                    .hidden = spec.hidden(),
                    .vocabulary = spec.vocabulary(),
                    .source_time = spec.source_time(),
                    .target_time = spec.target_time(),
                    .dropout = spec.dropout(),
                    .label_smoothing = spec.label_smoothing(),
                    .shared_embedding = spec.shared_embedding()});
}

absl::StatusOr<ModelGraph> BuildS2vtOf(const v1::ModelSpec& model) {
  const v1::S2vtSpec& spec = model.s2vt();
  return BuildS2vt({.vocabulary = spec.vocabulary(),
                    .frames = spec.frames(),
                    .words = spec.words(),
                    .features = spec.features(),
                    .hidden = spec.hidden(),
                    .embedding = spec.embedding()});
}

RopeConfig RopeOf(const v1::RopeSpec& spec) {
  return {.base = spec.base(),
          .scaling = spec.scaling(),
          .factor = spec.factor(),
          .low_frequency_factor = spec.low_frequency_factor(),
          .high_frequency_factor = spec.high_frequency_factor(),
          .original_context = spec.original_context()};
}

absl::StatusOr<ModelGraph> BuildLlamaOf(const v1::ModelSpec& model) {
  const v1::LlamaSpec& spec = model.llama();
  return BuildLlama({.layers = spec.layers(),
                     .width = spec.width(),
                     .heads = spec.heads(),
                     .key_value_heads = spec.key_value_heads(),
                     .head_size = spec.head_size(),
                     .hidden = spec.hidden(),
                     .context = spec.context(),
                     .vocabulary = spec.vocabulary(),
                     .epsilon = spec.epsilon(),
                     .rope = RopeOf(spec.rope()),
                     .qkv_bias = spec.qkv_bias(),
                     .qk_norm = spec.qk_norm(),
                     .window = spec.window(),
                     .tied_head = spec.tied_head()});
}

absl::StatusOr<ModelGraph> BuildBertOf(const v1::ModelSpec& model) {
  const v1::BertSpec& spec = model.bert();
  return BuildBert({.layers = spec.layers(),
                    .width = spec.width(),
                    .heads = spec.heads(),
                    .hidden = spec.hidden(),
                    .context = spec.context(),
                    .positions = spec.positions(),
                    .vocabulary = spec.vocabulary(),
                    .segments = spec.segments(),
                    .epsilon = spec.epsilon(),
                    .dropout = spec.dropout(),
                    .head = spec.head(),
                    .classes = spec.classes()});
}

// What read the job should have put the family in its place (job/hugging_face/read_config.h).
absl::StatusOr<ModelGraph> RefuseUnread(const v1::ModelSpec& model) {
  return absl::InvalidArgumentError(absl::StrCat("directory: the config.json of ",
                                                 model.hugging_face().directory(),
                                                 " was not read, so the model is not known"));
}

struct Family {
  v1::ModelSpec::ArchitectureCase architecture;
  const char* key;
  absl::StatusOr<ModelGraph> (*build)(const v1::ModelSpec& model);
};

constexpr Family kFamilies[] = {
    {v1::ModelSpec::kGpt, "gpt",
     [](const v1::ModelSpec& model) { return BuildGpt(GptConfigOf(model.gpt())); }},
    {v1::ModelSpec::kVgg, "vgg", BuildVggOf},
    {v1::ModelSpec::kAlexnet, "alexnet", BuildAlexNetOf},
    {v1::ModelSpec::kResnet, "resnet", BuildResNetOf},
    {v1::ModelSpec::kCifarResnet, "cifar_resnet", BuildCifarResNetOf},
    {v1::ModelSpec::kLstmLm, "lstm_lm", BuildLstmLmOf},
    {v1::ModelSpec::kAwdLm, "awd_lm", BuildAwdLmOf},
    {v1::ModelSpec::kGnmt, "gnmt", BuildGnmtOf},
    {v1::ModelSpec::kS2Vt, "s2vt", BuildS2vtOf},
    {v1::ModelSpec::kLlama, "llama", BuildLlamaOf},
    {v1::ModelSpec::kBert, "bert", BuildBertOf},
    {v1::ModelSpec::kHuggingFace, "hugging_face", RefuseUnread},
};

}  // namespace

absl::StatusOr<ModelGraph> BuildFamily(const v1::ModelSpec& spec) {
  for (const Family& family : kFamilies) {
    if (family.architecture != spec.architecture_case()) continue;
    absl::StatusOr<ModelGraph> model = family.build(spec);
    if (model.ok()) return model;
    return absl::InvalidArgumentError(
        absl::StrCat("model.", family.key, ".", model.status().message()));
  }
  return absl::InvalidArgumentError(
      "model: names none; expected layers, or a family such as gpt or resnet");
}

}  // namespace penstock
