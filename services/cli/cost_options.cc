#include "services/cli/cost_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

absl::StatusOr<double> At(const PerStageCost& cost, StageId stage, const Topology& topology) {
  if (cost.values.size() == 1) return cost.values[0];
  if (cost.values.size() == static_cast<size_t>(topology.parts())) {
    return cost.values[topology[stage].part];
  }
  return absl::InvalidArgumentError(absl::StrCat(cost.flag, ": has ", cost.values.size(),
                                                 " numbers; expected one, or one for each of ",
                                                 topology.parts(), " stages"));
}

// Returns the cost on the link that joins the parts of the model `part` and `part` + 1.
absl::StatusOr<double> AtLink(const PerStageCost& cost, int32_t part, const Topology& topology) {
  if (cost.values.size() == 1) return cost.values[0];
  const int32_t links = topology.parts() - 1;
  if (cost.values.size() == static_cast<size_t>(links)) return cost.values[part];
  return absl::InvalidArgumentError(absl::StrCat(cost.flag, ": has ", cost.values.size(),
                                                 " numbers; expected one, or one for each of ",
                                                 links, " links between stages"));
}

// Returns the part of the model before link `number`, which leads to the next part; -1 between two copies.
int32_t PartBefore(int32_t number, const Topology& topology) {
  const auto edge = std::find_if(
      topology.edges.begin(), topology.edges.end(),
      [&](const Edge& each) { return each.kind != EdgeKind::kCheckpoint && each.link == number; });
  if (edge == topology.edges.end()) return -1;
  return std::min(topology[edge->from].part, topology[edge->to].part);
}

void AddCost(CLI::App& app, PerStageCost& cost, const char* what) {
  app.add_option(cost.flag, cost.values, what)
      ->type_name("T[,T...]")
      ->delimiter(',')
      ->capture_default_str();
}

}  // namespace

void AddCostOptions(CLI::App& app, CostOptions& options) {
  AddCost(app, options.forward, "Time of a forward, for all stages or one for each");
  AddCost(app, options.backward_input, "Time of the gradient of the input");
  AddCost(app, options.backward_weight, "Time of the gradient of the weights");
  AddCost(app, options.update, "Time of an update");
  AddCost(app, options.copy, "Time of a copy of a stash to the host, or back");
  app.add_option("--message-bytes", options.message_bytes, "Size of a message between stages")
      ->type_name("BYTES")
      ->check(CLI::NonNegativeNumber);
  app.add_option(options.bytes_per_second.flag, options.bytes_per_second.values,
                 "Speed of a link, for all or one for each between two stages; default unlimited")
      ->type_name("BYTES[,BYTES...]")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option(options.latency.flag, options.latency.values,
                 "Time of a message on its way, for all links or one for each")
      ->type_name("T[,T...]")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  app.add_option("--overhead", options.overhead, "Time lost with every action")
      ->type_name("T")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--capacity", options.capacity,
                 "Messages a channel holds; default: 4, or as many as the schedule needs")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
}

absl::StatusOr<SimulationCosts> CostsOf(const CostOptions& options, const Topology& topology) {
  SimulationCosts costs;
  costs.overhead_s = options.overhead;
  // A stash has as many bytes as its copy takes seconds.
  costs.host = {.offload_bytes_per_second = 1.0, .prefetch_bytes_per_second = 1.0};
  for (int32_t id = 0; id < topology.stages(); ++id) {
    const StageId stage(id);
    StageCosts cost;
    PENSTOCK_ASSIGN_OR_RETURN(cost.forward_s, At(options.forward, stage, topology));
    PENSTOCK_ASSIGN_OR_RETURN(cost.backward_input_s, At(options.backward_input, stage, topology));
    PENSTOCK_ASSIGN_OR_RETURN(cost.backward_weight_s, At(options.backward_weight, stage, topology));
    PENSTOCK_ASSIGN_OR_RETURN(cost.update_s, At(options.update, stage, topology));
    PENSTOCK_ASSIGN_OR_RETURN(cost.stash_bytes, At(options.copy, stage, topology));
    costs.stages.push_back(cost);
  }
  for (int32_t number = 0; number < topology.links(); ++number) {
    LinkCosts& link = costs.links.emplace_back();
    const int32_t part = PartBefore(number, topology);
    if (part < 0) continue;  // nothing goes there
    link.bytes = options.message_bytes;
    PENSTOCK_ASSIGN_OR_RETURN(link.latency_s, AtLink(options.latency, part, topology));
    PENSTOCK_ASSIGN_OR_RETURN(const double speed, AtLink(options.bytes_per_second, part, topology));
    if (speed > 0) link.bytes_per_second = speed;
  }
  return costs;
}

}  // namespace penstock
