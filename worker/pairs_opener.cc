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

absl::StatusOr<std::unique_ptr<DataSource>> OpenPairs(const DataRequest& request) {
  const v1::PairsSpec& spec = request.spec.data().pairs();
  if (request.evaluated == DataPart::kAll && !spec.validation().empty()) {
    return absl::InvalidArgumentError(
        "data.pairs has directories for training and for validation; evaluate one of them");
  }
  if (request.evaluated == DataPart::kValidation && spec.validation().empty()) {
    return absl::InvalidArgumentError(
        "data.pairs.validation: is missing, so there is nothing that was not trained on; name it, "
        "or evaluate the training part");
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<PairFiles> training,
                            OpenPairFiles(request, spec.path(), spec.sha256()));
  std::unique_ptr<PairFiles> validation;
  if (request.evaluated.has_value() && request.evaluated != DataPart::kValidation) {
    PENSTOCK_ASSIGN_OR_RETURN(validation, OpenPairFiles(request, spec.path(), spec.sha256()));
  } else if (!spec.validation().empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(validation,
                              OpenPairFiles(request, spec.validation(), spec.validation_sha256()));
  }
  return PairsData::Open(
      std::move(training), std::move(validation), request.job.model,
      {.buckets = {.batch = request.evaluated.has_value() ? 1 : request.job.batch,
                   .buckets = spec.buckets(),
                   .seed = request.job.seed},
       .validation_samples = request.validates() ? request.validation_samples() : 0,
       .evaluates = request.evaluated.has_value()});
}

}  // namespace

const DataOpener kPairsOpener = {
    .source = v1::DataSpec::kPairs, .open = OpenPairs, .digest = DigestOfRecords};

}  // namespace penstock
