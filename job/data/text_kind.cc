// data.text: one text, of which every byte is a token.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exact_text.h"
#include "base/status.h"
#include "job/data/data_kind.h"
#include "job/keys/check_fields.h"
#include "job/keys/limits.h"

namespace penstock {
namespace {

constexpr char kTextRemedy[] =
    "--data FILE names another text, --data-root the folder that relative paths start from";

constexpr char kContiguous[] = "contiguous";

void FillTextDefaults(v1::DataSpec&) {}

absl::Status CheckTextSpec(const v1::JobSpec& spec) {
  const v1::GptSpec& gpt = spec.model().gpt();
  if (spec.model().has_gpt() && gpt.vocabulary() < kByteTokens) {
    return InvalidKey("model.gpt.vocabulary",
                      absl::StrCat("is ", gpt.vocabulary(), ", but the tokenizer \"bytes\" has ",
                                   kByteTokens, " tokens"));
  }
  if (spec.validation().every_steps() > 0 && spec.data().text().validation_fraction() == 0.0) {
    return InvalidKey("validation.every_steps",
                      "asks for validation, but data.text.validation_fraction is 0");
  }
  return CheckDigest("data.text.sha256", spec.data().text().sha256());
}

absl::Status TextFits(const v1::DataSpec& data, const ModelGraph& model) {
  const Node* const carrying = model.FindCarrying();
  if (carrying != nullptr && data.text().order() != kContiguous) {
    return InvalidKey(
        "data.text.order",
        absl::StrCat("is ", data.text().order(), ", but ", carrying->name, " (", carrying->op->name,
                     ", carried) goes on where the same sample of the step before ended; use "
                     "contiguous, or leave carried out"));
  }
  const std::vector<Port>& ports = model.ports;
  const bool fits = ports.size() == 2 && ports[0].type.dtype == DType::kI32 &&
                    ports[0].type.dims.size() == 1 && ports[1].type == ports[0].type &&
                    model.nodes.back().inputs.back() == 1;
  if (!fits) {
    return InvalidKey(
        "data.text",
        absl::StrCat("gives tokens i32 [context] and, as the targets of the loss, those after "
                     "them, but the model reads ",
                     absl::StrJoin(ports, ", ",
                                   [](std::string* text, const Port& port) {
                                     absl::StrAppend(text, port.name, " ", port.type.ToString());
                                   }),
                     "; change its inputs, or train on data.records, which can have any"));
  }
  for (const Port& port : ports) {
    if (port.ids >= kByteTokens || port.ids == 0) continue;
    return InvalidKey("data.text.tokenizer", absl::StrCat("is \"bytes\", which has ", kByteTokens,
                                                          " tokens, but the model's input ",
                                                          port.name, " takes ", port.ids));
  }
  return absl::OkStatus();
}

std::vector<DataInput> TextInputs(v1::DataSpec& data) {
  v1::TextSpec& text = *data.mutable_text();
  return {{.key = "data.text.path",
           .path = text.mutable_path(),
           .sha256_key = "data.text.sha256",
           .sha256 = text.mutable_sha256(),
           .remedy = kTextRemedy}};
}

Fingerprint TextFingerprint(const v1::DataSpec& data) {
  const v1::TextSpec& text = data.text();
  Fingerprint fingerprint = {
      {"data.text.sha256", text.sha256()},
      {"data.text.validation_fraction", ExactText(text.validation_fraction())}};
  // Checkpoints from before there were orders say nothing of it.
  if (text.order() == kContiguous) fingerprint.emplace_back("data.text.order", text.order());
  return fingerprint;
}

}  // namespace

const DataKind kTextKind = {.source = v1::DataSpec::kText,
                            .key = "data.text",
                            .fill_defaults = FillTextDefaults,
                            .check = CheckTextSpec,
                            .fits = TextFits,
                            .inputs = TextInputs,
                            .fingerprint = TextFingerprint};

}  // namespace penstock
