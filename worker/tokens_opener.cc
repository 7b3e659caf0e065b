// data.tokens: shards of token ids for the model's ports (CheckReadsTokens, job/data/data_kind.h), alone or mixed, and the digest of shards.
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/mixture.h"
#include "data/token_shards.h"
#include "job/data/data_kind.h"
#include "model/documents.h"
#include "worker/data_opener.h"
#include "worker/job_tokenizer.h"
#include "worker/masked_tokens.h"
#include "worker/mixed_data.h"
#include "worker/token_data.h"

namespace penstock {
namespace {

// Shards of the job, by their key.
struct ShardsOf {
  const std::string& path;
  const std::string& sha256;
};

absl::StatusOr<std::unique_ptr<TokenSequence>> OpenShards(const DataRequest& request,
                                                          const ShardsOf& shards) {
  const v1::TokensSpec& spec = request.spec.data().tokens();
  const Port& port = request.job.model.ports[TokenData::kTokens];
  TokenShardOptions options = {.sha256 = shards.sha256};
  PENSTOCK_ASSIGN_OR_RETURN(options.format, TokenFormatNamed(spec.format()));
  if (port.ids > 0) options.ids = port.ids;
  return TokenShards::Open(request.files, JoinPath(request.root, shards.path), options);
}

// The token that ends a document; -1 of a model that reads rows as one. `tokenizer`: the job's, or null.
absl::StatusOr<int32_t> EndOfText(const DataRequest& request, const Tokenizer* tokenizer) {
  const v1::TokensSpec& spec = request.spec.data().tokens();
  if (FindPositionsPort(request.job.model) < 0) return -1;
  if (spec.has_end_of_text()) return static_cast<int32_t>(spec.end_of_text());
  const std::optional<int32_t> end =
      tokenizer == nullptr ? std::nullopt : tokenizer->SpecialId(SpecialToken::kEos);
  if (end.has_value()) return *end;
  return absl::InvalidArgumentError(absl::StrCat(
      "data.tokens.end_of_text: is missing, and ", spec.tokenizer(),
      " names no token that ends a text, but model.separate_documents must know where documents "
      "end; set it"));
}

// How tokens are masked, if they are. `tokenizer`: the job's, or null.
absl::StatusOr<MaskingOptions> MaskingOf(const DataRequest& request, const Tokenizer* tokenizer) {
  const v1::MaskingSpec& spec = request.spec.data().tokens().masking();
  MaskingOptions masking = {.probability = spec.probability(), .seed = request.job.seed};
  std::optional<int32_t> mask;
  if (tokenizer != nullptr) {
    mask = tokenizer->SpecialId(SpecialToken::kMask);
    for (const SpecialToken special :
         {SpecialToken::kBos, SpecialToken::kEos, SpecialToken::kPadding}) {
      const std::optional<int32_t> id = tokenizer->SpecialId(special);
      if (id.has_value()) masking.kept.push_back(*id);
    }
  }
  if (spec.has_mask()) mask = static_cast<int32_t>(spec.mask());
  if (!mask.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("data.tokens.masking.mask: is missing, and ",
                                                   request.spec.data().tokens().tokenizer(),
                                                   " names no token for it; set it"));
  }
  masking.mask = *mask;
  return masking;
}

// What the job's sources have in common.
struct Common {
  TokenDataOptions options;
  std::optional<MaskingOptions> masking;
};

// Takes from the job's tokenizer, if it has one, what checkpoints and samples need of it.
absl::Status UseTokenizer(const DataRequest& request, Common& common) {
  TokenDataOptions& options = common.options;
  const v1::TokensSpec& spec = request.spec.data().tokens();
  JobTokenizer opened;
  if (!spec.tokenizer().empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(
        opened,
        OpenJobTokenizer(request, "data.tokens.tokenizer", spec.tokenizer(),
                         spec.tokenizer_sha256(), request.job.model.ports[TokenData::kTokens]));
    options.attached.push_back(std::move(opened.file));
  }
  PENSTOCK_ASSIGN_OR_RETURN(options.end_of_text, EndOfText(request, opened.tokenizer.get()));
  if (!spec.has_masking()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(common.masking, MaskingOf(request, opened.tokenizer.get()));
  return absl::OkStatus();
}

absl::StatusOr<Common> CommonOf(const DataRequest& request) {
  const v1::TokensSpec& spec = request.spec.data().tokens();
  Common common = {.options = TokenOptions(request, spec.order(), spec.validation_fraction())};
  common.options.batch = request.job.batch;
  PENSTOCK_RETURN_IF_ERROR(UseTokenizer(request, common));
  return common;
}

std::unique_ptr<DataSource> Masked(const DataRequest& request,
                                   std::optional<MaskingOptions> masking,
                                   std::unique_ptr<DataSource> tokens) {
  if (!masking.has_value()) return tokens;
  return std::make_unique<MaskedTokens>(std::move(tokens), request.job.model, *std::move(masking));
}

absl::StatusOr<std::unique_ptr<TokenData>> OpenSource(const DataRequest& request,
                                                      const ShardsOf& shards,
                                                      std::unique_ptr<TokenSequence> validation,
                                                      TokenDataOptions options) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<TokenSequence> training, OpenShards(request, shards));
  options.name = JoinPath(request.root, shards.path);
  return TokenData::Create(std::move(training), std::move(validation), options);
}

absl::StatusOr<std::unique_ptr<DataSource>> OpenMixture(const DataRequest& request) {
  const v1::TokensSpec& spec = request.spec.data().tokens();
  std::vector<double> weights = {spec.weight()};
  std::vector<ShardsOf> shards = {{spec.path(), spec.sha256()}};
  for (const v1::TokenSourceSpec& source : spec.mixture()) {
    weights.push_back(source.weight());
    shards.push_back({source.path(), source.sha256()});
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Mixture mixture, Mixture::Create(weights));
  PENSTOCK_ASSIGN_OR_RETURN(const Common shared, CommonOf(request));
  const TokenDataOptions& common = shared.options;
  std::vector<std::unique_ptr<DataSource>> sources;
  for (size_t i = 0; i < shards.size(); ++i) {
    TokenDataOptions options = common;
    options.validation_windows =
        mixture.SamplesBelow(common.validation_windows, static_cast<int>(i));
    // Sources draw their own numbers; the first brings the tokenizer.
    options.seed += i;
    if (i > 0) options.attached.clear();
    PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<TokenData> source,
                              OpenSource(request, shards[i], nullptr, options));
    sources.push_back(std::move(source));
  }
  auto mixed = std::make_unique<MixedData>(
      std::move(sources), mixture, common.context * static_cast<int64_t>(sizeof(int32_t)),
      request.evaluated.has_value() ? MixedData::Validation::kAllOfEach
                                    : MixedData::Validation::kMixed,
      common.validation_windows);
  return Masked(request, shared.masking, std::move(mixed));
}

absl::StatusOr<std::unique_ptr<DataSource>> OpenTokens(const DataRequest& request) {
  const v1::TokensSpec& spec = request.spec.data().tokens();
  if (!spec.mixture().empty()) return OpenMixture(request);
  if (request.evaluated == DataPart::kAll && !spec.validation().empty()) {
    return absl::InvalidArgumentError(
        "data.tokens has shards for training and for validation; evaluate one of them");
  }
  std::unique_ptr<TokenSequence> validation;
  if (!spec.validation().empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(validation,
                              OpenShards(request, {spec.validation(), spec.validation_sha256()}));
  }
  PENSTOCK_ASSIGN_OR_RETURN(Common common, CommonOf(request));
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<DataSource> tokens,
                            OpenSource(request, {spec.path(), spec.sha256()}, std::move(validation),
                                       std::move(common.options)));
  return Masked(request, std::move(common.masking), std::move(tokens));
}

absl::StatusOr<std::string> DigestOfTokens(const std::string& path,
                                           const std::function<bool()>& stop) {
  return DigestOfTokenShards(RealFiles(), path, stop);
}

}  // namespace

TokenDataOptions TokenOptions(const DataRequest& request, const std::string& order,
                              double validation_fraction) {
  const bool in_streams = request.evaluated.has_value()
                              ? request.job.model.FindCarrying() != nullptr
                              : order == kContiguousOrder;
  return {.validation_fraction = validation_fraction,
          .context = request.job.model.ports[TokenData::kTokens].type.dims[0],
          .order = OrderNamed(order),
          .needs_validation = request.validates(),
          .validation_windows = request.validation_samples(),
          .streams = in_streams ? request.job.batch : 0,
          .block = order == kBlockOrder ? request.job.microbatch_samples : 0,
          .evaluated = request.evaluated,
          .seed = request.job.seed};
}

const DataOpener kTokensOpener = {
    .source = v1::DataSpec::kTokens,
    .open = OpenTokens,
    .digest = DigestOfTokens,
    .is_here = [](const std::string& path) { return TokenShardPaths(RealFiles(), path).ok(); }};

}  // namespace penstock
