// penstock methods: the catalog.
#include <memory>
#include <nlohmann/json.hpp>

#include "schedule/catalog/catalog.h"
#include "services/cli/commands/commands.h"
#include "services/cli/json_output.h"
#include "services/cli/table.h"

namespace penstock {
namespace {

std::string ToString(absl::string_view view) { return std::string(view.data(), view.size()); }

absl::Status Run(bool json, Console& console) {
  if (json) {
    nlohmann::ordered_json methods = nlohmann::ordered_json::array();
    for (const Method& method : Methods()) {
      methods.push_back({{"method", ToString(method.name)},
                         {"summary", ToString(method.summary)},
                         {"paper", ToString(method.paper)},
                         {"synchronous", method.synchronous}});
    }
    PrintJson(methods, console);
    return absl::OkStatus();
  }
  Table table({{"METHOD"}, {"UPDATES"}, {"SUMMARY"}, {"PAPER"}});
  for (const Method& method : Methods()) {
    table.AddRow({ToString(method.name), method.synchronous ? "per step" : "continuous",
                  ToString(method.summary), ToString(method.paper)});
  }
  console.out << table.Render();
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareMethods(CLI::App& app) {
  const auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "Print JSON");
  return [json](Console& console) { return Run(*json, console); };
}

}  // namespace penstock
