// Files of device times: how long each pass takes on a device that need not be there.
#include "job/profile/device_times.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/yaml_round_trip.h"

PENSTOCK_FUZZ_TARGET(device_times) {
  using namespace penstock;
  const auto read = ParseDeviceTimes(FuzzBytes(data, size).rest(), "file.yaml");
  if (!read.ok()) return 0;
  FuzzAccepted();
  CheckYamlRoundTrip(*read, v1::DeviceTimes());
  PENSTOCK_CHECK(CheckDeviceTimes(*read).ok());
  return 0;
}
