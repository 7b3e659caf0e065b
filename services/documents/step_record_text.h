// Step records (results/step_records.h) as people and other programs read them. The keys and columns are in docs/step-records.md.
//
// Plain functions; any thread.
#pragma once

#include <string>

#include "results/step_records.h"

namespace penstock {

// {"step":12,"loss":3.1,...}, as a line. `step` comes first.
std::string StepRecordJsonLine(const StepRecord& record);

// The names of the columns, and a record's values, as lines. `step` comes first; what is not known is empty.
std::string StepRecordCsvHeader();
std::string StepRecordCsvLine(const StepRecord& record);

// The first record of a TensorBoard event file, and those of a step.
std::string TensorboardHeader(double unix_seconds);
std::string TensorboardRecord(const StepRecord& record);

}  // namespace penstock
