// Makes the options of a job's data source from its specification.
//
// Plain function.
#pragma once

#include <cstdint>
#include <string>

#include "job/resolve.h"
#include "penstock/v1/job.pb.h"
#include "worker/text_data.h"

namespace penstock {

// `path`: where the text is on this machine. `job`: what `spec` resolves to.
TextOptions TextOptionsOf(const v1::JobSpec& spec, const ResolvedJob& job, const std::string& path,
                          int64_t size_bytes_max);

}  // namespace penstock
