// data.tokens: files of token ids, alone or several sources mixed.
#include "absl/strings/str_cat.h"
#include "base/exact_text.h"
#include "base/status.h"
#include "job/data/data_kind.h"
#include "job/keys/check_fields.h"
#include "model/documents.h"

namespace penstock {
namespace {

constexpr char kTokensRemedy[] =
    "--data PATH names another file or directory of tokens, --data-root the folder that relative "
    "paths start from";
constexpr char kTokensValidationRemedy[] =
    "name files of tokens, or set data.tokens.validation_fraction in its place";

std::string SourceKey(int source) { return absl::StrCat("data.tokens.mixture[", source, "]"); }

void FillTokensDefaults(v1::DataSpec& data) {
  constexpr double kMaskedPart = 0.15;  // of BERT's paper
  v1::TokensSpec& tokens = *data.mutable_tokens();
  if (tokens.has_masking() && !tokens.masking().has_probability()) {
    tokens.mutable_masking()->set_probability(kMaskedPart);
  }
  if (tokens.has_validation_fraction()) return;
  tokens.set_validation_fraction(DefaultValidationFraction(!tokens.validation().empty()));
}

absl::Status CheckMixture(const v1::TokensSpec& tokens) {
  if (tokens.mixture().empty()) return absl::OkStatus();
  if (!tokens.validation().empty()) {
    return InvalidKey("data.tokens.validation",
                      "is there, but a mixture validates on the last part of each of its sources; "
                      "leave it out");
  }
  if (tokens.order() == kContiguousOrder) {
    return InvalidKey("data.tokens.order",
                      "is contiguous, in which a sample goes on where one of the step before "
                      "ended, but the samples of a mixture are of several sources; use shuffled");
  }
  if (tokens.order() == kBlockOrder) {
    return InvalidKey("data.tokens.order",
                      "is blocks, in which the samples of a microbatch follow one another, but the "
                      "samples of a mixture are of several sources; use shuffled");
  }
  for (int i = 0; i < tokens.mixture_size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckDigest(absl::StrCat(SourceKey(i), ".sha256"), tokens.mixture(i).sha256()));
  }
  return absl::OkStatus();
}

absl::Status CheckTokensSpec(const v1::JobSpec& spec) {
  const v1::TokensSpec& tokens = spec.data().tokens();
  PENSTOCK_RETURN_IF_ERROR(CheckValidationPart(spec, {.kind = "data.tokens",
                                                      .own_data = "files that are",
                                                      .no_data = "no files",
                                                      .has_own_data = !tokens.validation().empty(),
                                                      .fraction = tokens.validation_fraction(),
                                                      .sha256 = tokens.validation_sha256()}));
  PENSTOCK_RETURN_IF_ERROR(CheckMixture(tokens));
  PENSTOCK_RETURN_IF_ERROR(CheckDigest("data.tokens.tokenizer_sha256", tokens.tokenizer_sha256()));
  PENSTOCK_RETURN_IF_ERROR(CheckDigest("data.tokens.sha256", tokens.sha256()));
  return CheckDigest("data.tokens.validation_sha256", tokens.validation_sha256());
}

absl::Status MaskingFits(const v1::TokensSpec& tokens, const ModelGraph& model) {
  PENSTOCK_RETURN_IF_ERROR(CheckReadsMasked("data.tokens.masking", model));
  const bool knows_mask = tokens.masking().has_mask();
  if (!knows_mask && tokens.tokenizer().empty()) {
    return InvalidKey("data.tokens.masking.mask",
                      "is missing; set it, or data.tokens.tokenizer, which says it");
  }
  if (!knows_mask || tokens.masking().mask() < model.ports[0].ids) return absl::OkStatus();
  return InvalidKey("data.tokens.masking.mask",
                    absl::StrCat("is ", tokens.masking().mask(),
                                 ", but the model knows the ids below ", model.ports[0].ids));
}

// Whether the model knows all ids is known where they are read.
absl::Status TokensFit(const v1::DataSpec& data, const ModelGraph& model) {
  const v1::TokensSpec& tokens = data.tokens();
  if (tokens.has_masking()) return MaskingFits(tokens, model);
  PENSTOCK_RETURN_IF_ERROR(CheckReadsTokens("data.tokens", tokens.order(), model));
  const bool knows_ends = tokens.has_end_of_text() || !tokens.tokenizer().empty();
  if (FindPositionsPort(model) < 0 || knows_ends) return absl::OkStatus();
  return InvalidKey("data.tokens.end_of_text",
                    "is missing, but model.separate_documents must know where documents end; set "
                    "it, or data.tokens.tokenizer, which says it");
}

std::vector<DataInput> TokensInputs(v1::DataSpec& data) {
  v1::TokensSpec& tokens = *data.mutable_tokens();
  std::vector<DataInput> inputs = {{.key = "data.tokens.path",
                                    .path = tokens.mutable_path(),
                                    .sha256_key = "data.tokens.sha256",
                                    .sha256 = tokens.mutable_sha256(),
                                    .remedy = kTokensRemedy}};
  if (!tokens.validation().empty()) {
    inputs.push_back({.key = "data.tokens.validation",
                      .path = tokens.mutable_validation(),
                      .sha256_key = "data.tokens.validation_sha256",
                      .sha256 = tokens.mutable_validation_sha256(),
                      .remedy = kTokensValidationRemedy,
                      .use = DataInput::Use::kValidation});
  }
  if (!tokens.tokenizer().empty()) {
    inputs.push_back({.key = "data.tokens.tokenizer",
                      .path = tokens.mutable_tokenizer(),
                      .sha256_key = "data.tokens.tokenizer_sha256",
                      .sha256 = tokens.mutable_tokenizer_sha256(),
                      .remedy = kTokenizerRemedy,
                      .use = DataInput::Use::kTokenizer});
  }
  for (int i = 0; i < tokens.mixture_size(); ++i) {
    v1::TokenSourceSpec& source = *tokens.mutable_mixture(i);
    inputs.push_back({.key = absl::StrCat(SourceKey(i), ".path"),
                      .path = source.mutable_path(),
                      .sha256_key = absl::StrCat(SourceKey(i), ".sha256"),
                      .sha256 = source.mutable_sha256(),
                      .remedy = kTokensRemedy});
  }
  return inputs;
}

Fingerprint TokensFingerprint(const v1::DataSpec& data) {
  const v1::TokensSpec& tokens = data.tokens();
  Fingerprint fingerprint = {
      {"data.tokens.sha256", tokens.sha256()},
      {"data.tokens.format", tokens.format()},
      {"data.tokens.validation_fraction", ExactText(tokens.validation_fraction())},
      {"data.tokens.order", tokens.order()}};
  if (tokens.has_end_of_text()) {
    fingerprint.emplace_back("data.tokens.end_of_text", absl::StrCat(tokens.end_of_text()));
  }
  if (tokens.has_masking()) {
    fingerprint.emplace_back("data.tokens.masking", ExactText(tokens.masking().probability()));
  }
  if (tokens.mixture().empty()) return fingerprint;
  fingerprint.emplace_back("data.tokens.weight", ExactText(tokens.weight()));
  for (int i = 0; i < tokens.mixture_size(); ++i) {
    fingerprint.emplace_back(absl::StrCat(SourceKey(i), ".sha256"), tokens.mixture(i).sha256());
    fingerprint.emplace_back(absl::StrCat(SourceKey(i), ".weight"),
                             ExactText(tokens.mixture(i).weight()));
  }
  return fingerprint;
}

}  // namespace

const DataKind kTokensKind = {.source = v1::DataSpec::kTokens,
                              .key = "data.tokens",
                              .fill_defaults = FillTokensDefaults,
                              .check = CheckTokensSpec,
                              .fits = TokensFit,
                              .inputs = TokensInputs,
                              .fingerprint = TokensFingerprint};

}  // namespace penstock
