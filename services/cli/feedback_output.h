// Feedback, predicted and measured side by side, as people see it; as JSON: services/documents/.
//
// Pure functions.
#pragma once

#include <string>

#include "penstock/v1/cluster.pb.h"

namespace penstock {

// A table with a row for the step and two for each worker; empty without a prediction.
std::string FeedbackText(const v1::Feedback& feedback);

// ", step 105.3 ms, 100.0 ms predicted": what a title says of the step, as far as it is known.
std::string StepUseText(const v1::Feedback& feedback);

}  // namespace penstock
