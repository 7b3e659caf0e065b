// penstock data put | list | remove: files and directories that a cluster without a shared disk trains on.
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/put_path.h"
#include "base/status.h"
#include "services/cli/commands/data_records.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/data_client.h"
#include "services/cli/data_progress.h"
#include "services/cli/interrupt.h"
#include "services/cli/table.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

struct DataPutOptions {
  CoordinatorOptions coordinator;
  std::vector<std::string> files;
  std::string sha256;
  bool json = false;
};

struct DataListOptions {
  CoordinatorOptions coordinator;
  bool json = false;
};

struct DataRemoveOptions {
  CoordinatorOptions coordinator;
  std::vector<std::string> digests;
  bool json = false;
};

nlohmann::ordered_json PutJson(const std::string& file, const PutFile& put) {
  return {{"file", file},
          {"path", put.path},
          {"sha256", put.sha256},
          {"files", put.files},
          {"bytes", put.size_bytes},
          {"bytes_held_before", put.bytes_held_before},
          {"bytes_sent", put.bytes_sent},
          {"bytes_sent_again", put.bytes_sent_again},
          {"breaks", put.breaks}};
}

absl::Status RunPut(const DataPutOptions& options, Console& console) {
  if (!options.sha256.empty() && options.files.size() > 1) {
    return absl::InvalidArgumentError("--sha256 is the digest of one file; put them one by one");
  }
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  PENSTOCK_ASSIGN_OR_RETURN(DataClient client, DataClient::Connect(options.coordinator));
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const std::string& file : options.files) {
    absl::StatusOr<PutFile> put;
    {
      DataProgress progress("byte", interrupt, console);
      put =
          client.Put(file, options.sha256, [&](int64_t done, int64_t all, const std::string& what) {
            return progress.Report(done, all, what);
          });
    }
    PENSTOCK_RETURN_IF_ERROR(put.status());
    if (options.json) {
      files.push_back(PutJson(file, *put));
      continue;
    }
    console.out << (put->bytes_sent == 0 ? "is there already: " : "put ") << file << ", "
                << (put->files > 1 ? absl::StrCat(put->files, " files, ") : "")
                << FormatBytes(put->size_bytes) << "\nIn a job: path: " << put->path << "\n";
  }
  if (options.json) PrintJson(files, console);
  return absl::OkStatus();
}

absl::Status RunList(const DataListOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(DataClient client, DataClient::Connect(options.coordinator));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::StoredData> files, client.List());
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  Table table(
      {{"PATH IN A JOB"}, {"SIZE", Table::Align::kRight}, {"IS THERE", Table::Align::kRight}});
  for (const v1::StoredData& file : files) {
    json.push_back({{"path", PutPath{file.sha256()}.ToString()},
                    {"sha256", file.sha256()},
                    {"bytes", file.size_bytes()},
                    {"bytes_held", file.held_bytes()},
                    {"whole", file.whole()}});
    table.AddRow({PutPath{file.sha256()}.ToString(), FormatBytes(file.size_bytes()),
                  file.whole() ? "whole" : FormatBytes(file.held_bytes())});
  }
  if (options.json) {
    PrintJson(json, console);
  } else {
    console.out << table.Render();
  }
  return absl::OkStatus();
}

absl::Status RunRemove(const DataRemoveOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(DataClient client, DataClient::Connect(options.coordinator));
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const std::string& digest : options.digests) {
    const std::string sha256(absl::StripSuffix(absl::StripPrefix(digest, kPutPrefix), "/"));
    PENSTOCK_ASSIGN_OR_RETURN(const bool removed, client.Remove(sha256));
    json.push_back({{"path", PutPath{sha256}.ToString()}, {"removed", removed}});
    if (!options.json) {
      console.out << PutPath{sha256}.ToString() << (removed ? " is removed\n" : " was not there\n");
    }
  }
  if (options.json) PrintJson(json, console);
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareDataPut(CLI::App& app) {
  const auto options = std::make_shared<DataPutOptions>();
  app.add_option(
         "PATH", options->files,
         "A text, a file of tokens, a tokenizer; or a directory of records, pairs or tokens, a "
         "model of Hugging Face's, a checkpoint")
      ->required()
      ->type_name("");
  app.add_option("--sha256", options->sha256,
                 "The SHA-256 that the file must have; without it, it is read once more to compute "
                 "that")
      ->type_name("DIGEST");
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunPut(*options, console); };
}

CommandRunner DeclareDataList(CLI::App& app) {
  const auto options = std::make_shared<DataListOptions>();
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunList(*options, console); };
}

CommandRunner DeclareDataRemove(CLI::App& app) {
  const auto options = std::make_shared<DataRemoveOptions>();
  app.add_option("DIGEST", options->digests,
                 "sha256:HEX, or HEX; of a directory only its list goes")
      ->required()
      ->type_name("");
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunRemove(*options, console); };
}

}  // namespace penstock
