// ProductRates: how fast this worker's device multiplies matrices, measured once for each precision and number of threads
// that jobs ask for.
//
// Thread-compatible: the executor thread's.
#pragma once

#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "compute/backend.h"
#include "compute/device.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

class ProductRates {
 public:
  // `device`: as in MakeJobBackend.
  ProductRates(const Device& device, int threads_max)
      : device_(device), threads_max_(threads_max) {}

  // Floating-point operations a second. Measures with a back-end of its own, so that the job's counts none of it.
  // Errors: those of MakeJobBackend and MeasureProductRate; later jobs try again.
  absl::StatusOr<double> Of(const v1::JobSpec& spec, Clock& clock);

 private:
  const Device device_;
  const int threads_max_;
  std::map<std::pair<Precision, int>, double> known_;
};

}  // namespace penstock
