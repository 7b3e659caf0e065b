// data.synthetic.
#include "worker/data_opener.h"
#include "worker/synthetic_data.h"

namespace penstock {
namespace {

absl::StatusOr<std::unique_ptr<DataSource>> OpenSynthetic(const DataRequest& request) {
  return std::make_unique<SyntheticData>(request.job.model.ports, request.job.batch,
                                         request.job.seed, request.validation_samples());
}

}  // namespace

const DataOpener kSyntheticOpener = {
    .source = v1::DataSpec::kSynthetic, .open = OpenSynthetic, .digest = nullptr};

}  // namespace penstock
