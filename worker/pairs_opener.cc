// data.pairs: the directories of pairs.
#include <utility>

#include "base/status.h"
#include "worker/data_opener.h"
#include "worker/pairs_data.h"

namespace penstock {
namespace {

absl::StatusOr<std::unique_ptr<PairFiles>> OpenPairFiles(const DataRequest& request,
                                                         const std::string& path,
                                                         const std::string& sha256) {
  return PairFiles::Open(request.files, JoinPath(request.root, path),
                         RecordOptions(request, path, sha256));
}

// The directory that a model is evaluated on.
absl::StatusOr<std::unique_ptr<DataSource>> OpenPairsToEvaluate(const DataRequest& request) {
  const v1::PairsSpec& spec = request.spec.data().pairs();
  const DataPart part = *request.evaluated;
  if (part == DataPart::kAll && !spec.validation().empty()) {
    return absl::InvalidArgumentError(
        "data.pairs has directories for training and for validation; evaluate one of them");
  }
  if (part == DataPart::kValidation && spec.validation().empty()) {
    return absl::InvalidArgumentError(
        "data.pairs.validation: is missing, so there is nothing that was not trained on; name it, "
        "or evaluate the training part");
  }
  const bool validates = part == DataPart::kValidation;
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<PairFiles> pairs,
                            OpenPairFiles(request, validates ? spec.validation() : spec.path(),
                                          validates ? spec.validation_sha256() : spec.sha256()));
  return PairsData::OpenToEvaluate(std::move(pairs), request.job.model);
}

absl::StatusOr<std::unique_ptr<DataSource>> OpenPairs(const DataRequest& request) {
  if (request.evaluated.has_value()) return OpenPairsToEvaluate(request);
  const v1::PairsSpec& spec = request.spec.data().pairs();
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<PairFiles> training,
                            OpenPairFiles(request, spec.path(), spec.sha256()));
  std::unique_ptr<PairFiles> validation;
  if (!spec.validation().empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(validation,
                              OpenPairFiles(request, spec.validation(), spec.validation_sha256()));
  }
  return PairsData::Open(
      std::move(training), std::move(validation), request.job.model,
      {.buckets = {.batch = request.job.batch, .buckets = spec.buckets(), .seed = request.job.seed},
       .validation_samples = request.validates() ? request.validation_samples() : 0});
}

}  // namespace

const DataOpener kPairsOpener = {
    .source = v1::DataSpec::kPairs, .open = OpenPairs, .digest = DigestOfRecords};

}  // namespace penstock
