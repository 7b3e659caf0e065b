#include "services/metrics/catalog.h"

#include <map>

#include "services/metrics/cluster_metrics.h"
#include "services/metrics/process_metrics.h"
#include "services/metrics/run_metrics.h"
#include "services/metrics/stage_metrics.h"

namespace penstock {

const std::vector<MetricGroup>& MetricCatalog() {
  static const auto& catalog = *[] {
    auto* groups = new std::vector<MetricGroup>;
    for (const auto& more :
         {StageMetricGroups(), RunMetricGroups(), ClusterMetricGroups(), ProcessMetricGroups()}) {
      groups->insert(groups->end(), more.begin(), more.end());
    }
    return groups;
  }();
  return catalog;
}

const MetricDescription* FindMetric(absl::string_view name) {
  static const auto& by_name = *[] {
    auto* index = new std::map<absl::string_view, const MetricDescription*>;
    for (const MetricGroup& group : MetricCatalog()) {
      for (const MetricDescription& metric : group.metrics) index->emplace(metric.name, &metric);
    }
    return index;
  }();
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : found->second;
}

const std::vector<LabelDescription>& MetricLabels() {
  static const auto& labels = *new std::vector<LabelDescription>{
      {"job", "the job's id, as `penstock list` shows it"},
      {"name", "the job's name in its file"},
      {"method", "the job's method"},
      {"metric", "what a validation measures beside the loss: accuracy or top5"},
      {"worker", "the worker's name"},
      {"device", "the worker's device"},
      {"stage", "the stage's number, from 0"},
      {"cause",
       "of idle time `input`, `credit`, `collective`, `data`, `host`, `checkpoint`; of lost "
       "workers "
       "`gone`, "
       "`unanswered`, `silent`, `restarted`, `stuck`"},
      {"part",
       "part of overhead: `send`, `receive` and `collective` (handing tensors over), `between` "
       "(from one action to the next)"},
      {"action",
       "`F`, `R`, `I`, `W`, `SEND_F`, `RECV_F`, `SEND_B`, `RECV_B`, `REDUCE`, `NORM`, "
       "`UPDATE`, ..."},
      {"direction", "copies: `to_device` or `to_host`; links: `sent` or `received`"},
      {"how", "passes: `replayed` from a CUDA graph, or `queued` call by call"},
      {"place", "`device`, or `host` for versions that wait there (`training.stash`)"},
      {"peer", "the name of the worker at the other end"},
      {"edge", "`activation`, `gradient`, `collective`, `checkpoint`, `sum`"},
      {"source",
       "of an edge the stage it comes from (of `collective` the worker's number); of a "
       "figure `predicted` or `measured`"},
      {"destination", "the stage that an edge goes to (of `collective` the worker's number)"},
      {"path", "how tensors travel: `host`, `shared-memory`, `cuda-ipc`, `peer`"},
      {"state",
       "of jobs `queued`, `preparing`, `running`, `draining`, `recovering`, `succeeded`, `failed`, "
       "`cancelled`; of workers `free`, `busy`, `leaving`, `stuck`, `lost`"},
      {"reason",
       "`stale_epoch`, `corrupt`, `malformed`, `duplicate`, `over_limit`, "
       "`unauthenticated`, `forbidden`, `other_version`, `other`"},
      {"program", "`penstock-coordinator`, `penstock-worker` or, of `train --metrics`, `penstock`"},
      {"version", "the version of the build"},
  };
  return labels;
}

}  // namespace penstock
