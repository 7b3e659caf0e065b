// data.synthetic: random values of the right shapes.
#include "job/data/data_kind.h"

namespace penstock {
namespace {

void FillSyntheticDefaults(v1::DataSpec&) {}
absl::Status CheckSynthetic(const v1::JobSpec&) { return absl::OkStatus(); }
std::vector<DataInput> SyntheticInputs(v1::DataSpec&) { return {}; }
Fingerprint SyntheticFingerprint(const v1::DataSpec&) { return {{"data", "synthetic"}}; }

}  // namespace

const DataKind kSyntheticKind = {.source = v1::DataSpec::kSynthetic,
                                 .key = "data.synthetic",
                                 .fill_defaults = FillSyntheticDefaults,
                                 .check = CheckSynthetic,
                                 .inputs = SyntheticInputs,
                                 .fingerprint = SyntheticFingerprint};

}  // namespace penstock
