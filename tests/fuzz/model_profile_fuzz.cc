// Profiles of models: times and memory of every layer, and what is made of them for other sizes.
#include "job/profile/model_profile.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/yaml_round_trip.h"

PENSTOCK_FUZZ_TARGET(model_profile) {
  using namespace penstock;
  const auto read = ParseModelProfile(FuzzBytes(data, size).rest(), "file.yaml");
  if (!read.ok()) return 0;
  FuzzAccepted();
  CheckYamlRoundTrip(*read, v1::ModelProfile());
  PENSTOCK_CHECK(CheckModelProfile(*read).ok());
  PENSTOCK_CHECK(ParseModelProfile(PrintModelProfile(*read), "again.yaml").ok());
  for (const int64_t samples : {int64_t{1}, int64_t{3}, int64_t{1} << 40}) {
    const absl::StatusOr<v1::DeviceTimes> times = DeviceTimesOf(*read, samples);
    PENSTOCK_CHECK(!times.ok() || times->layers_size() == read->layers_size());
  }
  return 0;
}
