// data.synthetic: random values of the right shapes.
#include "job/data/data_kind.h"

namespace penstock {
namespace {

void FillSyntheticDefaults(v1::DataSpec&) {}
absl::Status CheckSyntheticSpec(const v1::JobSpec&) { return absl::OkStatus(); }
absl::Status SyntheticFits(const v1::DataSpec&, const ModelGraph&) { return absl::OkStatus(); }

std::vector<DataInput> SyntheticInputs(v1::DataSpec&) { return {}; }
Fingerprint SyntheticFingerprint(const v1::DataSpec&) { return {{"data", "synthetic"}}; }

}  // namespace

const DataKind kSyntheticKind = {.source = v1::DataSpec::kSynthetic,
                                 .key = "data.synthetic",
                                 .fill_defaults = FillSyntheticDefaults,
                                 .check = CheckSyntheticSpec,
                                 .fits = SyntheticFits,
                                 .inputs = SyntheticInputs,
                                 .fingerprint = SyntheticFingerprint};

}  // namespace penstock
