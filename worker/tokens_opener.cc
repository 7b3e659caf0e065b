// data.tokens: shards of token ids for the model's ports (CheckReadsTokens, job/data/data_kind.h), alone or mixed, and the digest of shards.
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/mixture.h"
#include "data/token_shards.h"
#include "job/data/data_kind.h"
#include "worker/data_opener.h"
#include "worker/job_tokenizer.h"
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

// The job's tokenizer, for its checkpoints; none, if it has none.
absl::StatusOr<std::vector<AttachedFile>> AttachedOf(const DataRequest& request) {
  const v1::TokensSpec& spec = request.spec.data().tokens();
  std::vector<AttachedFile> attached;
  if (spec.tokenizer().empty()) return attached;
  PENSTOCK_ASSIGN_OR_RETURN(
      JobTokenizer opened,
      OpenJobTokenizer(request, "data.tokens.tokenizer", spec.tokenizer(), spec.tokenizer_sha256(),
                       request.job.model.ports[TokenData::kTokens]));
  attached.push_back(std::move(opened.file));
  return attached;
}

// What all sources of a job have in common.
absl::StatusOr<TokenDataOptions> OptionsOf(const DataRequest& request) {
  const v1::TokensSpec& spec = request.spec.data().tokens();
  TokenDataOptions options = TokenOptions(request, spec.order(), spec.validation_fraction());
  options.batch = request.job.batch;
  PENSTOCK_ASSIGN_OR_RETURN(options.attached, AttachedOf(request));
  return options;
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
  PENSTOCK_ASSIGN_OR_RETURN(const TokenDataOptions common, OptionsOf(request));
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
  return std::make_unique<MixedData>(
      std::move(sources), mixture, common.context * static_cast<int64_t>(sizeof(int32_t)),
      request.evaluated.has_value() ? MixedData::Validation::kAllOfEach
                                    : MixedData::Validation::kMixed,
      common.validation_windows);
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
  PENSTOCK_ASSIGN_OR_RETURN(TokenDataOptions options, OptionsOf(request));
  return OpenSource(request, {spec.path(), spec.sha256()}, std::move(validation),
                    std::move(options));
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
          .evaluated = request.evaluated,
          .seed = request.job.seed};
}

const DataOpener kTokensOpener = {
    .source = v1::DataSpec::kTokens,
    .open = OpenTokens,
    .digest = DigestOfTokens,
    .is_here = [](const std::string& path) { return TokenShardPaths(RealFiles(), path).ok(); }};

}  // namespace penstock
