// The verbs of `penstock data`, and what they say of a directory of records.
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/string_view.h"
#include "data/record_index.h"
#include "services/cli/command.h"
#include "services/cli/json_output.h"

namespace penstock {

std::string Plural(int64_t count, absl::string_view noun);

// {"image": {"dtype": "U8", "shape": [28, 28, 1]}}, and {"source": {"dtype": "I32"}}.
nlohmann::ordered_json TensorsJson(const RecordIndex& index);
nlohmann::ordered_json SequencesJson(const RecordIndex& index);

// What all of `penstock data prepare` are told.
struct PrepareCommon {
  std::string to;
  int64_t shard_mebibytes = 256;
  bool json = false;
};
// Declares the flags for that. `output`: what -o is for.
void AddCommon(CLI::App& app, const std::string& output, PrepareCommon& common);

// Declares `penstock data prepare instructions`.
CommandRunner DeclareInstructions(CLI::App& app);

// Declare the verbs of `penstock data`.
CommandRunner DeclareDataPrepare(CLI::App& app);
CommandRunner DeclareDataShow(CLI::App& app);
CommandRunner DeclareDataPut(CLI::App& app);
CommandRunner DeclareDataList(CLI::App& app);
CommandRunner DeclareDataRemove(CLI::App& app);

}  // namespace penstock
