// The metrics of a validation for people.
#pragma once

#include <string>

#include "penstock/v1/cluster.pb.h"

namespace penstock {

using MetricValues = google::protobuf::RepeatedPtrField<v1::MetricValue>;

// "accuracy 34.1 %"; one of a newer version goes by its name in messages.
std::string MetricText(const v1::MetricValue& metric);
// ", accuracy 34.1 %, top-5 70.2 %", to follow a loss; empty if there is none.
std::string MetricsAfterLoss(const MetricValues& metrics);

}  // namespace penstock
