// data.text: one text, of which every byte is a token.
#include "absl/strings/str_cat.h"
#include "base/exact_text.h"
#include "base/status.h"
#include "job/data/data_kind.h"
#include "job/keys/check_fields.h"
#include "job/keys/limits.h"

namespace penstock {
namespace {

constexpr char kTextRemedy[] =
    "--data FILE names another text, --data-root the folder that relative paths start from";

void FillTextDefaults(v1::DataSpec&) {}

absl::Status CheckText(const v1::JobSpec& spec) {
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
  return {{"data.text.sha256", text.sha256()},
          {"data.text.validation_fraction", ExactText(text.validation_fraction())}};
}

}  // namespace

const DataKind kTextKind = {.source = v1::DataSpec::kText,
                            .key = "data.text",
                            .fill_defaults = FillTextDefaults,
                            .check = CheckText,
                            .inputs = TextInputs,
                            .fingerprint = TextFingerprint};

}  // namespace penstock
