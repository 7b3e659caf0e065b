#include "services/cli/cost_options.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

absl::StatusOr<double> At(const PerStageCost& cost, StageId stage, const Topology& topology) {
  if (cost.values.size() == 1) return cost.values[0];
  if (cost.values.size() == static_cast<size_t>(topology.parts())) {
    return cost.values[topology.PartOf(stage)];
  }
  return absl::InvalidArgumentError(absl::StrCat(cost.flag, ": has ", cost.values.size(),
                                                 " numbers; expected one, or one for each of ",
                                                 topology.parts(), " stages"));
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
  app.add_option("--message-bytes", options.message_bytes, "Size of a message between stages")
      ->type_name("BYTES")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--bytes-per-second", options.bytes_per_second,
                 "Speed of a link; default unlimited")
      ->type_name("BYTES")
      ->check(CLI::PositiveNumber);
  app.add_option("--latency", options.latency, "Time of a message on its way")
      ->type_name("T")
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
  for (int32_t id = 0; id < topology.stages(); ++id) {
    const StageId stage(id);
    StageCosts cost;
    PENSTOCK_ASSIGN_OR_RETURN(cost.forward_s, At(options.forward, stage, topology));
    PENSTOCK_ASSIGN_OR_RETURN(cost.backward_input_s, At(options.backward_input, stage, topology));
    PENSTOCK_ASSIGN_OR_RETURN(cost.backward_weight_s, At(options.backward_weight, stage, topology));
    PENSTOCK_ASSIGN_OR_RETURN(cost.step_s, At(options.update, stage, topology));
    costs.stages.push_back(cost);
  }
  LinkCosts link = {.bytes = options.message_bytes, .latency_s = options.latency};
  if (options.bytes_per_second > 0) link.bytes_per_second = options.bytes_per_second;
  costs.links.assign(LinksOf(topology), link);
  return costs;
}

}  // namespace penstock
