// penstock data prepare images | pairs | tokens | instructions: image sets, sentences with their translations, and chats to
// records; texts to token files.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status.h"
#include "data/image_sets.h"
#include "data/pair_sets.h"
#include "data/token_sets.h"
#include "services/cli/commands/data_records.h"
#include "services/cli/data_progress.h"
#include "services/cli/interrupt.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

struct PrepareImagesOptions {
  std::string from;
  PrepareCommon common;
};

struct PreparePairsOptions {
  std::vector<std::string> from;
  std::string algorithm = "unigram";
  PairSetOptions pairs;
  PrepareCommon common;
};

nlohmann::ordered_json PartJson(const std::string& directory, const RecordIndex& index) {
  nlohmann::ordered_json json = {{"directory", directory},
                                 {"records", index.records()},
                                 {"shards", index.shards.size()},
                                 {"tensors", TensorsJson(index)}};
  if (!index.sequences.empty()) json["sequences"] = SequencesJson(index);
  return json;
}

absl::Status RunPrepareImages(const PrepareImagesOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  absl::StatusOr<PreparedImages> prepared;
  {
    DataProgress progress("file", interrupt, console);
    prepared = PrepareImages(RealFiles(),
                             {.from = options.from,
                              .to = options.common.to,
                              .shard_bytes_max = options.common.shard_mebibytes << 20,
                              .progress = [&](int64_t done, int64_t all, const std::string& file) {
                                return progress.Report(done, all, file);
                              }});
  }
  PENSTOCK_RETURN_IF_ERROR(prepared.status());
  if (options.common.json) {
    nlohmann::ordered_json parts = nlohmann::ordered_json::array();
    for (const PreparedPart& part : prepared->parts) {
      parts.push_back(PartJson(part.directory, part.index));
    }
    PrintJson({{"set", prepared->set}, {"parts", parts}}, console);
    return absl::OkStatus();
  }
  for (const PreparedPart& part : prepared->parts) {
    console.out << "wrote " << part.directory << ": " << Plural(part.index.records(), "record")
                << " of " << prepared->set << "\n";
  }
  return absl::OkStatus();
}

// Files as they are; of folders the catalogues below them, in the order of their paths.
absl::StatusOr<std::vector<std::string>> PairFilesIn(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> below;
    std::filesystem::recursive_directory_iterator entries(path, error);
    for (; !error && entries != std::filesystem::end(entries); entries.increment(error)) {
      const std::string file = entries->path().string();
      if (absl::EndsWith(file, ".mo") && entries->is_regular_file(error)) below.push_back(file);
    }
    if (error) return absl::NotFoundError(absl::StrCat(path, ": ", error.message()));
    if (below.empty()) {
      return absl::NotFoundError(
          absl::StrCat(path, " has no .mo file below it; name other files of pairs one by one"));
    }
    std::sort(below.begin(), below.end());
    files.insert(files.end(), below.begin(), below.end());
  }
  return files;
}

std::string LeftOutText(const PairFacts& facts) {
  std::vector<std::string> counts;
  for (const PairCount& count : facts.counts) {
    if (count.what != kPairsRead) counts.push_back(absl::StrCat(count.what, " ", count.pairs));
  }
  return absl::StrJoin(counts, ", ");
}

nlohmann::ordered_json CountsJson(const PairFacts& facts) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const PairCount& count : facts.counts) json[count.what] = count.pairs;
  return json;
}

absl::Status RunPreparePairs(const PreparePairsOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  PairSetOptions pairs = options.pairs;
  PENSTOCK_ASSIGN_OR_RETURN(pairs.files, PairFilesIn(options.from));
  pairs.to = options.common.to;
  pairs.shard_bytes_max = options.common.shard_mebibytes << 20;
  if (options.algorithm == "bpe") pairs.training.algorithm = PieceAlgorithm::kBpe;
  absl::StatusOr<PreparedPairs> prepared;
  {
    DataProgress progress("step", interrupt, console);
    pairs.progress = [&](int64_t done, int64_t all, const std::string& what) {
      return progress.Report(done, all, what);
    };
    pairs.stop = [&] { return interrupt.Count() > 0; };
    prepared = PreparePairs(RealFiles(), pairs);
  }
  if (absl::IsCancelled(prepared.status())) return InterruptedError(prepared.status().message());
  PENSTOCK_RETURN_IF_ERROR(prepared.status());
  const PieceNumbers& vocabulary = prepared->facts.vocabulary;
  if (options.common.json) {
    nlohmann::ordered_json parts = nlohmann::ordered_json::array();
    for (const PreparedPairSet& part : prepared->parts) {
      parts.push_back(PartJson(part.directory, part.index));
    }
    PrintJson({{"pieces", vocabulary.pieces},
               {"files", pairs.files.size()},
               {"counts", CountsJson(prepared->facts)},
               {"parts", parts}},
              console);
    return absl::OkStatus();
  }
  for (const PreparedPairSet& part : prepared->parts) {
    console.out << "wrote " << part.directory << ": " << Plural(part.index.records(), "pair")
                << "\n";
  }
  console.out << "The vocabulary has " << Plural(vocabulary.pieces, "piece") << ". Of "
              << Plural(prepared->facts.counts.front().pairs, "pair")
              << " that were read, these were left out: " << LeftOutText(prepared->facts) << ".\n";
  return absl::OkStatus();
}

struct PrepareTokensOptions {
  TokenSetOptions tokens;
  PrepareCommon common;
};

absl::Status RunPrepareTokens(const PrepareTokensOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  TokenSetOptions tokens = options.tokens;
  tokens.to = options.common.to;
  tokens.shard_bytes_max = options.common.shard_mebibytes << 20;
  absl::StatusOr<PreparedTokens> prepared;
  {
    DataProgress progress("byte", interrupt, console);
    tokens.progress = [&](int64_t done, int64_t all, const std::string& what) {
      return progress.Report(done, all, what);
    };
    prepared = PrepareTokens(RealFiles(), tokens);
  }
  if (absl::IsCancelled(prepared.status())) return InterruptedError(prepared.status().message());
  PENSTOCK_RETURN_IF_ERROR(prepared.status());
  if (options.common.json) {
    PrintJson({{"directory", tokens.to},
               {"tokenizer", prepared->tokenizer},
               {"vocabulary", prepared->vocabulary},
               {"documents", prepared->documents},
               {"text_bytes", prepared->text_bytes},
               {"tokens", prepared->tokens},
               {"shards", prepared->shards.size()}},
              console);
    return absl::OkStatus();
  }
  const double bytes_per_token =
      static_cast<double>(prepared->text_bytes) / static_cast<double>(prepared->tokens);
  console.out << "wrote " << tokens.to << ": " << Plural(prepared->tokens, "token") << " of "
              << Plural(prepared->documents, "document") << " in "
              << Plural(static_cast<int64_t>(prepared->shards.size()), "shard") << ", "
              << FormatFixed(bytes_per_token, 2) << " bytes each, by a vocabulary of "
              << prepared->vocabulary << "\n"
              << "In a job: data: {tokens: {path: " << tokens.to << ", tokenizer: " << tokens.to
              << "}}\n";
  return absl::OkStatus();
}

CommandRunner DeclareImages(CLI::App& app) {
  const auto options = std::make_shared<PrepareImagesOptions>();
  app.add_option("FOLDER", options->from,
                 "Where the files are, under the names that they are published with")
      ->required()
      ->type_name("");
  AddCommon(app, "A folder for the directories `train` and `test`, for data.records",
            options->common);
  return [options](Console& console) { return RunPrepareImages(*options, console); };
}

CommandRunner DeclarePairs(CLI::App& app) {
  const auto options = std::make_shared<PreparePairsOptions>();
  PairSetOptions& pairs = options->pairs;
  app.add_option("FILE", options->from,
                 "gettext catalogues (.mo), tables (.tsv: source, tab, target), or folders, of "
                 "which the catalogues below them are read")
      ->type_name("");
  CLI::Option* const source =
      app.add_option("--source", pairs.source_text, "A text, of which line i is a source")
          ->type_name("FILE");
  CLI::Option* const target =
      app.add_option("--target", pairs.target_text, "A text, of which line i is its target")
          ->type_name("FILE");
  source->needs(target);
  target->needs(source);
  AddCommon(app, "A folder for the directories `train`, `validation` and `test`, for data.pairs",
            options->common);
  app.add_option("--validation", pairs.validation_fraction,
                 "The part of the pairs that is for validation; which ones follows from their "
                 "sources")
      ->type_name("FRACTION")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--test", pairs.test_fraction, "The same for the test")
      ->type_name("FRACTION")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--bytes", pairs.bytes_max, "Pairs of which a side has more bytes are left out")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--pieces", pairs.training.pieces,
                 "The most pieces of the vocabulary, which both languages share")
      ->type_name("N")
      ->check(CLI::Range(16, 1'000'000))
      ->capture_default_str();
  app.add_option("--algorithm", options->algorithm, "How SentencePiece learns pieces")
      ->type_name("ALGORITHM")
      ->check(CLI::IsMember({"unigram", "bpe"}))
      ->capture_default_str();
  app.add_option("--piece-model", pairs.piece_model,
                 "A SentencePiece model whose pieces are taken, and none learnt")
      ->type_name("FILE");
  return [options](Console& console) { return RunPreparePairs(*options, console); };
}

CommandRunner DeclareTokens(CLI::App& app) {
  const auto options = std::make_shared<PrepareTokensOptions>();
  TokenSetOptions& tokens = options->tokens;
  app.add_option("FILE", tokens.from,
                 "Texts, each a document, or .jsonl files, each line of which is one")
      ->required()
      ->type_name("");
  AddCommon(app, "A directory for the token files and their tokenizer, for data.tokens",
            options->common);
  CLI::Option* const tokenizer =
      app.add_option("--tokenizer", tokens.tokenizer,
                     "A tokenizer.json, a .model of SentencePiece, or a directory with either; "
                     "without one a vocabulary is learned from the texts")
          ->type_name("PATH");
  app.add_option("--vocabulary", tokens.vocabulary, "The size of a vocabulary that is learned")
      ->type_name("N")
      ->check(CLI::Range(257, 1'000'000))
      ->capture_default_str()
      ->excludes(tokenizer);
  app.add_option("--field", tokens.field, "The field of a line of a .jsonl file that has the text")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--threads", tokens.threads, "Threads that cut texts into tokens")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  return [options](Console& console) { return RunPrepareTokens(*options, console); };
}

}  // namespace

void AddCommon(CLI::App& app, const std::string& output, PrepareCommon& common) {
  app.add_option("-o,--output", common.to, output)->required()->type_name("DIR");
  app.add_option("--shard-mebibytes", common.shard_mebibytes, "The size of a shard")
      ->type_name("N")
      ->check(CLI::Range(1, 16'384))
      ->capture_default_str();
  app.add_flag("--json", common.json, "Print JSON");
}

CommandRunner DeclareDataPrepare(CLI::App& app) {
  CLI::App* images =
      app.add_subcommand("images", "Make records of the files of MNIST, CIFAR-10 or CIFAR-100");
  CLI::App* pairs =
      app.add_subcommand("pairs", "Make pairs of pieces of sentences and their translations");
  CLI::App* tokens = app.add_subcommand("tokens", "Make token files of texts");
  CLI::App* instructions = app.add_subcommand(
      "instructions", "Make records of prompts with responses, or chats, of which responses count");
  app.require_subcommand(1);
  const std::vector<std::pair<CLI::App*, CommandRunner>> commands = {
      {images, DeclareImages(*images)},
      {pairs, DeclarePairs(*pairs)},
      {tokens, DeclareTokens(*tokens)},
      {instructions, DeclareInstructions(*instructions)}};
  return [commands](Console& console) {
    const auto parsed = std::find_if(commands.begin(), commands.end(),
                                     [](const auto& command) { return command.first->parsed(); });
    return parsed->second(console);
  };
}

}  // namespace penstock
