#include "job/model_families.h"

#include "absl/strings/str_cat.h"
#include "job/model_graph.h"
#include "model/families/images.h"

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
