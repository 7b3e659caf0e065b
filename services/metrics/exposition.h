// Metrics in Prometheus' terms: its library's types, and the text that a scrape reads.
//
// Pure functions.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "services/metrics/metric.h"

namespace penstock {

std::vector<prometheus::MetricFamily> ToPrometheus(std::vector<MetricFamily> families);

// The Content-Type of ExpositionText.
inline constexpr char kExpositionContentType[] = "text/plain; version=0.0.4; charset=utf-8";
std::string ExpositionText(std::vector<MetricFamily> families);

}  // namespace penstock
