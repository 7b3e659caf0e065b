// penstock data prepare | show: files as they come to records, and what a directory of records holds.
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
  app.require_subcommand(1);
  return [prepare, run_prepare = DeclareDataPrepare(*prepare),
          run_show = DeclareDataShow(*show)](Console& console) {
    return prepare->parsed() ? run_prepare(console) : run_show(console);
  };
}

}  // namespace penstock
