// data.text: one text, cut into tokens.
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

constexpr char kRandomOrder[] = "random";
bool IsBytes(const v1::TextSpec& text) { return text.tokenizer() == kByteTokenizer; }
bool IsCharacters(const v1::TextSpec& text) { return text.tokenizer() == kCharacterTokenizer; }

void FillTextDefaults(v1::DataSpec&) {}

absl::Status CheckTokenizer(const std::string& tokenizer) {
  const bool is_path = tokenizer.find_first_of("./") != std::string::npos;
  if (tokenizer == kByteTokenizer || tokenizer == kCharacterTokenizer || is_path) {
    return absl::OkStatus();
  }
  return InvalidKey(
      "data.text.tokenizer",
      absl::StrCat("is \"", tokenizer, "\"; expected ", kByteTokenizer, ", ", kCharacterTokenizer,
                   ", or the path of a tokenizer, which for a directory has a / (./", tokenizer,
                   ")"));
}

absl::Status CheckTextSpec(const v1::JobSpec& spec) {
  const v1::TextSpec& text = spec.data().text();
  PENSTOCK_RETURN_IF_ERROR(CheckTokenizer(text.tokenizer()));
  const v1::GptSpec& gpt = spec.model().gpt();
  if (spec.model().has_gpt() && IsBytes(text) && gpt.vocabulary() < kByteTokens) {
    return InvalidKey("model.gpt.vocabulary",
                      absl::StrCat("is ", gpt.vocabulary(), ", but the tokenizer \"bytes\" has ",
                                   kByteTokens, " tokens"));
  }
  if (spec.validation().every_steps() > 0 && text.validation_fraction() == 0.0) {
    return InvalidKey("validation.every_steps",
                      "asks for validation, but data.text.validation_fraction is 0");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckDigest("data.text.sha256", text.sha256()));
  return CheckDigest("data.text.tokenizer_sha256", text.tokenizer_sha256());
}

absl::Status TextFits(const v1::DataSpec& data, const ModelGraph& model) {
  PENSTOCK_RETURN_IF_ERROR(CheckReadsTokens("data.text", data.text().order(), model));
  if (!IsBytes(data.text())) return absl::OkStatus();  // a file or the text says how many
  for (const Port& port : model.ports) {
    if (port.ids >= kByteTokens || port.ids == 0) continue;
    return InvalidKey("data.text.tokenizer", absl::StrCat("is \"bytes\", which has ", kByteTokens,
                                                          " tokens, but the model's input ",
                                                          port.name, " takes ", port.ids));
  }
  return absl::OkStatus();
}

std::vector<DataInput> TextInputs(v1::DataSpec& data) {
  v1::TextSpec& text = *data.mutable_text();
  std::vector<DataInput> inputs = {{.key = "data.text.path",
                                    .path = text.mutable_path(),
                                    .sha256_key = "data.text.sha256",
                                    .sha256 = text.mutable_sha256(),
                                    .remedy = kTextRemedy}};
  if (!IsBytes(text) && !IsCharacters(text) && !text.tokenizer().empty()) {
    inputs.push_back({.key = "data.text.tokenizer",
                      .path = text.mutable_tokenizer(),
                      .sha256_key = "data.text.tokenizer_sha256",
                      .sha256 = text.mutable_tokenizer_sha256(),
                      .remedy = kTokenizerRemedy,
                      .use = DataInput::Use::kTokenizer});
  }
  return inputs;
}

Fingerprint TextFingerprint(const v1::DataSpec& data) {
  const v1::TextSpec& text = data.text();
  Fingerprint fingerprint = {
      {"data.text.sha256", text.sha256()},
      {"data.text.validation_fraction", ExactText(text.validation_fraction())}};
  // Checkpoints from before there were other orders and tokenizers say nothing of them.
  if (text.order() != kRandomOrder) fingerprint.emplace_back("data.text.order", text.order());
  if (IsCharacters(text)) {  // whose text says them
    fingerprint.emplace_back("data.text.tokenizer", text.tokenizer());
  } else if (!IsBytes(text)) {
    fingerprint.emplace_back("data.text.tokenizer_sha256", text.tokenizer_sha256());
  }
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
