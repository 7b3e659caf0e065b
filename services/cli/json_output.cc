#include "services/cli/json_output.h"

namespace penstock {

void PrintJson(const nlohmann::ordered_json& json, Console& console) {
  constexpr int kIndent = 2;
  console.out << json.dump(kIndent, ' ', /*ensure_ascii=*/false,
                           nlohmann::ordered_json::error_handler_t::replace)
              << "\n";
}

}  // namespace penstock
