// All metrics, in the order in which they are shown.
#pragma once

#include "model/metric.h"

#define PENSTOCK_METRICS(ROW) \
  ROW(Accuracy)               \
  ROW(Top5)

namespace penstock {

#define PENSTOCK_COUNT_METRIC(Name) +1
inline constexpr int kMetricCount = 0 PENSTOCK_METRICS(PENSTOCK_COUNT_METRIC);
#undef PENSTOCK_COUNT_METRIC

namespace metrics {

#define PENSTOCK_DECLARE_METRIC(Name) extern const Metric k##Name;
PENSTOCK_METRICS(PENSTOCK_DECLARE_METRIC)
#undef PENSTOCK_DECLARE_METRIC

}  // namespace metrics
}  // namespace penstock
