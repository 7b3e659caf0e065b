// A job's result for people: a few lines and a table of stages.
#pragma once

#include <string>

#include "penstock/v1/cluster.pb.h"

namespace penstock {

std::string ResultText(const v1::GetJobResponse& job);

// "3-7": the layers of a stage; "3" if it is one.
std::string LayersText(int first, int count);

}  // namespace penstock
