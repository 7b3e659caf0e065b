#include "studies/command/drawn_numbers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "checkpoint/safetensors.h"

namespace penstock {
namespace {

constexpr absl::string_view kNoise = "noise.";
constexpr int32_t kStagesMax = 1024;

std::vector<double> ValuesOf(const TensorView& tensor) {
  std::vector<double> values(tensor.bytes.size() / sizeof(double));
  std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(double));
  return values;
}

std::string MetadataOf(const SafetensorsView& file, const std::string& key) {
  const auto at = file.metadata.find(key);
  return at == file.metadata.end() ? std::string() : at->second;
}

class NumbersReader {
 public:
  NumbersReader(const SafetensorsView& file, const std::string& name) : file_(file), name_(name) {}

  absl::StatusOr<DrawnNumbers> Read() const {
    DrawnNumbers numbers{.problem = {.name = name_, .loss = Loss::kLogistic}};
    Problem& problem = numbers.problem;
    PENSTOCK_ASSIGN_OR_RETURN(const TensorView* const features, Find("features", 2));
    problem.features.rows = features->shape[0];
    problem.features.columns = features->shape[1];
    problem.features.values = ValuesOf(*features);
    PENSTOCK_ASSIGN_OR_RETURN(const TensorView* const targets, Find("targets", 1));
    problem.targets = ValuesOf(*targets);
    const bool fits = targets->shape[0] == problem.rows() && problem.rows() > 0 &&
                      problem.width() > 0 &&
                      std::all_of(problem.targets.begin(), problem.targets.end(),
                                  [](double target) { return target == 0.0 || target == 1.0; });
    if (!fits) {
      return Error(absl::StrCat("expected for each of the ", problem.rows(),
                                " rows of \"features\" a 0 or a 1 in \"targets\""));
    }
    if (!absl::SimpleAtod(MetadataOf(file_, "l2"), &problem.l2) || !(problem.l2 >= 0.0)) {
      return Error("expected \"l2\", a number of at least 0, in its metadata");
    }
    for (const TensorView& tensor : file_.tensors) {
      if (!absl::StartsWith(tensor.name, kNoise)) continue;
      DrawnNumbers::OfStages of;
      PENSTOCK_ASSIGN_OR_RETURN(const TensorView* const noise, Find(tensor.name, 1));
      const absl::string_view stages = absl::StripPrefix(tensor.name, kNoise);
      if (!absl::SimpleAtoi(stages, &of.stages) || of.stages < 1 || of.stages > kStagesMax) {
        return Error(absl::StrCat(
            "\"", tensor.name, "\": expected noise.S, a number of stages from 1 to ", kStagesMax));
      }
      of.noise = GradientNoise(ValuesOf(*noise));
      of.published = MetadataOf(file_, absl::StrCat("published.", of.stages));
      numbers.of_stages.push_back(std::move(of));
    }
    if (numbers.of_stages.empty()) return Error("expected \"noise.S\" for some number of stages S");
    std::sort(numbers.of_stages.begin(), numbers.of_stages.end(),
              [](const auto& a, const auto& b) { return a.stages < b.stages; });
    return numbers;
  }

 private:
  absl::Status Error(const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ": ", what, "; studies/theory/draw_numbers.py writes such a file"));
  }

  absl::StatusOr<const TensorView*> Find(const std::string& tensor, size_t rank) const {
    const auto found = std::find_if(file_.tensors.begin(), file_.tensors.end(),
                                    [&](const TensorView& each) { return each.name == tensor; });
    if (found == file_.tensors.end() || found->dtype != "F64" || found->shape.size() != rank) {
      return Error(absl::StrCat("expected the tensor \"", tensor, "\", F64 of ", rank,
                                rank == 1 ? " dimension" : " dimensions"));
    }
    return &*found;
  }

  const SafetensorsView& file_;
  const std::string& name_;
};

}  // namespace

absl::StatusOr<DrawnNumbers> ParseDrawnNumbers(absl::string_view file, const std::string& name) {
  const absl::StatusOr<SafetensorsView> view = ParseSafetensors(file);
  if (!view.ok()) return Annotate(view.status(), name);
  return NumbersReader(*view, name).Read();
}

}  // namespace penstock
