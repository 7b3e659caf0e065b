#include "checkpoint/fingerprint.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/exact_text.h"
#include "model/describe.h"

namespace penstock {
namespace {

const std::string* Find(const Fingerprint& fingerprint, const std::string& field) {
  const auto it = std::find_if(fingerprint.begin(), fingerprint.end(),
                               [&](const auto& entry) { return entry.first == field; });
  return it == fingerprint.end() ? nullptr : &it->second;
}

}  // namespace

Fingerprint MakeFingerprint(const FingerprintInputs& inputs) {
  const Chain& chain = inputs.chain;
  Fingerprint fingerprint = {{"model.architecture", chain.architecture},
                             {"model.vocabulary", absl::StrCat(chain.vocabulary)},
                             {"model.context", absl::StrCat(chain.context)},
                             {"model.width", absl::StrCat(chain.width)},
                             {"model layers", absl::StrCat(chain.size())}};
  for (const LayerSpec& layer : chain.layers) {
    fingerprint.emplace_back(absl::StrCat("model layer ", layer.name), Describe(layer.config));
  }
  fingerprint.emplace_back("training.optimizer", std::string(KindOf(inputs.optimizer)));
  fingerprint.emplace_back("training.batch", absl::StrCat(inputs.batch));
  fingerprint.emplace_back("training.seed", absl::StrCat(inputs.seed));
  fingerprint.emplace_back("data.text.sha256", inputs.data_sha256);
  fingerprint.emplace_back("data.text.validation_fraction", ExactText(inputs.validation_fraction));
  return fingerprint;
}

absl::Status CompareFingerprints(const Fingerprint& checkpoint, const Fingerprint& job) {
  for (const auto& [field, value] : job) {
    const std::string* stored = Find(checkpoint, field);
    if (stored != nullptr && *stored == value) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the checkpoint is of another job: ", field, " is ", stored == nullptr ? "absent" : *stored,
        " in the checkpoint and ", value, " in the job"));
  }
  if (checkpoint.size() != job.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint is of another job: it has ", checkpoint.size(),
                     " fields that must match, the job has ", job.size()));
  }
  return absl::OkStatus();
}

}  // namespace penstock
