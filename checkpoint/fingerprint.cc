#include "checkpoint/fingerprint.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "model/describe.h"

namespace penstock {
namespace {

constexpr char kFrozenField[] = "training.groups frozen in ";
constexpr char kNameSeparator[] = ", ";

const std::string* Find(const Fingerprint& fingerprint, const std::string& field) {
  const auto it = std::find_if(fingerprint.begin(), fingerprint.end(),
                               [&](const auto& entry) { return entry.first == field; });
  return it == fingerprint.end() ? nullptr : &it->second;
}

// The sizes of what the model reads. Checkpoints of a GPT have always told them by these three.
void AddInputs(const ModelGraph& model, Fingerprint& fingerprint) {
  if (model.architecture == "gpt") {
    for (const char* size : {"vocabulary", "context", "width"}) {
      fingerprint.emplace_back(absl::StrCat("model.", size),
                               absl::StrCat(model.nodes.front().attributes.integer(size)));
    }
    return;
  }
  for (const Port& port : model.ports) {
    fingerprint.emplace_back(absl::StrCat("model input ", port.name), port.type.ToString());
  }
}

// ", reads a, b": the values from outside the layer. Layers of a GPT read the one before.
std::string ReadNames(const ModelGraph& model, const LayerSpec& layer) {
  if (model.architecture == "gpt") return "";
  std::vector<std::string> names;
  for (int node = layer.first_node; node < layer.end_node(); ++node) {
    for (const int value : model.nodes[node].inputs) {
      const bool outside = model.is_port(value) || model.NodeOf(value) < layer.first_node;
      if (outside) names.push_back(model.NameOf(value));
    }
  }
  return absl::StrCat(", reads ", absl::StrJoin(names, ", "));
}

// Which layers share parameters. The head of a GPT says it itself.
void AddSharing(const ModelGraph& model, Fingerprint& fingerprint) {
  if (model.untied) fingerprint.emplace_back("model.untie", "true");
  if (model.architecture == "gpt") return;
  for (const Tie& tie : model.ties) {
    const auto name = [&](std::string* out, int layer) {
      absl::StrAppend(out, model.layers[layer].name);
    };
    for (const ParameterSpec& parameter : tie.parameters) {
      fingerprint.emplace_back(absl::StrCat("model shared ", parameter.name),
                               absl::StrCat("by ", absl::StrJoin(tie.uses, ", ", name)));
    }
  }
}

// Which parameters are not trained: their optimizer's state is not there.
void AddFrozen(const ModelGraph& model, Fingerprint& fingerprint) {
  for (const LayerSpec& layer : model.layers) {
    std::vector<std::string> names;
    for (const ParameterSpec& parameter : layer.parameters) {
      if (parameter.frozen) names.push_back(parameter.name);
    }
    if (names.empty()) continue;
    fingerprint.emplace_back(absl::StrCat(kFrozenField, layer.name),
                             absl::StrJoin(names, kNameSeparator));
  }
}

}  // namespace

Fingerprint MakeFingerprint(const FingerprintInputs& inputs) {
  const ModelGraph& model = inputs.model;
  Fingerprint fingerprint = {{"model.architecture", model.architecture}};
  AddInputs(model, fingerprint);
  fingerprint.emplace_back("model layers", absl::StrCat(model.size()));
  for (const LayerSpec& layer : model.layers) {
    fingerprint.emplace_back(absl::StrCat("model layer ", layer.name),
                             absl::StrCat(Describe(model, layer), ReadNames(model, layer)));
  }
  AddSharing(model, fingerprint);
  AddFrozen(model, fingerprint);
  if (!inputs.pretrained.empty()) fingerprint.emplace_back("model.pretrained", inputs.pretrained);
  fingerprint.emplace_back("training.optimizer", std::string(KindOf(inputs.optimizer)));
  fingerprint.emplace_back("training.batch", absl::StrCat(inputs.batch));
  fingerprint.emplace_back("training.seed", absl::StrCat(inputs.seed));
  fingerprint.insert(fingerprint.end(), inputs.data.begin(), inputs.data.end());
  return fingerprint;
}

std::set<std::string> FrozenParameters(const Fingerprint& fingerprint) {
  std::set<std::string> frozen;
  for (const auto& [field, value] : fingerprint) {
    if (!absl::StartsWith(field, kFrozenField)) continue;
    const std::vector<std::string> names = absl::StrSplit(value, kNameSeparator);
    frozen.insert(names.begin(), names.end());
  }
  return frozen;
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
