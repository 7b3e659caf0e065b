// penstock data prepare | show | put | list | remove: files as they come to records, what a directory of records holds, and
// files on the cluster.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/cli/commands/commands.h"
#include "services/cli/commands/data_records.h"

namespace penstock {

std::string Plural(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

nlohmann::ordered_json TensorsJson(const RecordIndex& index) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
  for (const TensorType& tensor : index.tensors) {
    tensors[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}};
  }
  return tensors;
}

nlohmann::ordered_json SequencesJson(const RecordIndex& index) {
  nlohmann::ordered_json sequences = nlohmann::ordered_json::object();
  for (const SequenceType& sequence : index.sequences) {
    sequences[sequence.name] = {{"dtype", sequence.dtype}};
  }
  return sequences;
}

CommandRunner DeclareData(CLI::App& app) {
  CLI::App* prepare = app.add_subcommand("prepare", "Make records of files as they come");
  CLI::App* show = app.add_subcommand("show", "Show what a directory of records holds");
  CLI::App* put = app.add_subcommand("put", "Bring files to the cluster, whose workers fetch them");
  CLI::App* list = app.add_subcommand("list", "List the files that were put");
  CLI::App* remove = app.add_subcommand("remove", "Remove files that were put");
  app.require_subcommand(1);
  const std::vector<std::pair<CLI::App*, CommandRunner>> verbs = {
      {prepare, DeclareDataPrepare(*prepare)},
      {show, DeclareDataShow(*show)},
      {put, DeclareDataPut(*put)},
      {list, DeclareDataList(*list)},
      {remove, DeclareDataRemove(*remove)}};
  return [verbs](Console& console) {
    for (const auto& [verb, run] : verbs) {
      if (verb->parsed()) return run(console);
    }
    return absl::OkStatus();
  };
}

}  // namespace penstock
