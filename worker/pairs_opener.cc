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
  const bool validates = request.spec.validation().every_steps() > 0;
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
       .validation_samples = validates ? request.validation_samples() : 0});
}

}  // namespace

const DataOpener kPairsOpener = {
    .source = v1::DataSpec::kPairs, .open = OpenPairs, .digest = DigestOfRecords};

}  // namespace penstock
