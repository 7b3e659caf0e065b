#include "data/instruction_sets.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/record_writer.h"
#include "tokenizer/limits.h"

namespace penstock {
namespace {

constexpr int64_t kLinesBytesMax = int64_t{4} << 30;  // a file is held in memory
constexpr size_t kRowsInHand = 64;                    // that an example may still go to
constexpr int64_t kLinesBetweenReports = 256;

// The values of a record.
struct Row {
  std::vector<int32_t> tokens, targets, positions;
};

// Lays examples in rows and writes these.
class RowPacker {
 public:
  RowPacker(RecordWriter& writer, int64_t context, bool is_packed, int32_t padding)
      : writer_(writer),
        context_(static_cast<size_t>(context)),
        rows_in_hand_(is_packed ? kRowsInHand : 0),
        padding_(padding) {}

  // REQUIRES: the example has at least 2 tokens, and no more than context + 1.
  absl::Status Add(const InstructionTokens& example) {
    const size_t steps = example.ids.size() - 1;
    auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& each) {
      return each.tokens.size() + steps <= context_;
    });
    if (row == rows_.end()) row = rows_.emplace(rows_.end());
    for (size_t t = 0; t < steps; ++t) {
      row->tokens.push_back(example.ids[t]);
      row->targets.push_back(example.counts[t + 1] ? example.ids[t + 1] : kIgnoredTarget);
      row->positions.push_back(static_cast<int32_t>(t));
    }
    if (rows_.size() <= rows_in_hand_) return absl::OkStatus();
    return WriteFirst();
  }

  absl::Status Finish() {
    while (!rows_.empty()) PENSTOCK_RETURN_IF_ERROR(WriteFirst());
    return absl::OkStatus();
  }

  int64_t rows() const { return written_; }

 private:
  // Padding is a document of its own.
  absl::Status WriteFirst() {
    Row& row = rows_.front();
    for (int32_t t = 0; row.tokens.size() < context_; ++t) {
      row.tokens.push_back(padding_);
      row.targets.push_back(kIgnoredTarget);
      row.positions.push_back(t);
    }
    const auto bytes = [](const std::vector<int32_t>& values) {
      return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                                 values.size() * sizeof(int32_t));
    };
    // In the order of the names, as the index has them.
    PENSTOCK_RETURN_IF_ERROR(
        writer_.Add({bytes(row.positions), bytes(row.targets), bytes(row.tokens)}));
    rows_.pop_front();
    ++written_;
    return absl::OkStatus();
  }

  RecordWriter& writer_;
  const size_t context_;
  const size_t rows_in_hand_;
  const int32_t padding_;
  std::deque<Row> rows_;
  int64_t written_ = 0;
};

// Encodes the lines of files and hands them to the packer.
class InstructionReader {
 public:
  InstructionReader(const InstructionSetOptions& options, const Tokenizer& tokenizer,
                    RowPacker& packer, PreparedInstructions& prepared)
      : options_(options), tokenizer_(tokenizer), packer_(packer), prepared_(prepared) {}

  absl::Status ReadFile(Files& files, const std::string& path) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, files.Read(path, kLinesBytesMax));
    const auto all_bytes = static_cast<int64_t>(text.size());
    absl::string_view rest = text;
    for (int64_t line = 1; !rest.empty(); ++line) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const absl::Status added = AddLine(rest.substr(0, end));
      if (!added.ok()) return Annotate(added, absl::StrCat(path, ": line ", line));
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (line % kLinesBetweenReports != 0 || !options_.progress) continue;
      PENSTOCK_RETURN_IF_ERROR(
          options_.progress(all_bytes - static_cast<int64_t>(rest.size()), all_bytes, path));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status AddLine(absl::string_view line) {
    if (absl::StripAsciiWhitespace(line).empty()) return absl::OkStatus();
    PENSTOCK_ASSIGN_OR_RETURN(const InstructionTokens example,
                              EncodeInstruction(line, options_.roles, tokenizer_));
    const auto tokens = static_cast<int64_t>(example.ids.size());
    if (tokens < 2) return absl::InvalidArgumentError("has a single token, and so no target");
    if (tokens > options_.context + 1) {
      ++prepared_.too_long;
      return absl::OkStatus();
    }
    ++prepared_.examples;
    prepared_.tokens += tokens;
    prepared_.targets += std::count(example.counts.begin() + 1, example.counts.end(), true);
    return packer_.Add(example);
  }

  const InstructionSetOptions& options_;
  const Tokenizer& tokenizer_;
  RowPacker& packer_;
  PreparedInstructions& prepared_;
};

int32_t PaddingOf(const Tokenizer& tokenizer) {
  return tokenizer.SpecialId(SpecialToken::kPadding)
      .value_or(tokenizer.SpecialId(SpecialToken::kEos).value_or(0));
}

}  // namespace

absl::StatusOr<PreparedInstructions> PrepareInstructions(Files& files,
                                                         const InstructionSetOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const TokenizerFile file,
                            OpenTokenizerFile(files, options.tokenizer, [](const TokenizerFile&) {
                              return absl::OkStatus();
                            }));
  const Tokenizer& tokenizer = *file.tokenizer;
  const std::vector<int64_t> shape = {options.context};
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::unique_ptr<RecordWriter> writer,
      RecordWriter::Create(
          files, options.to,
          {{"positions", "I32", shape}, {"targets", "I32", shape}, {"tokens", "I32", shape}},
          options.shard_bytes_max));
  PreparedInstructions prepared;
  RowPacker packer(*writer, options.context, options.is_packed, PaddingOf(tokenizer));
  InstructionReader reader(options, tokenizer, packer, prepared);
  for (const std::string& path : options.from) {
    PENSTOCK_RETURN_IF_ERROR(reader.ReadFile(files, path));
  }
  if (prepared.examples == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no example of at most context + 1 = ", options.context + 1,
                     " tokens (", prepared.too_long, " are longer)"));
  }
  PENSTOCK_RETURN_IF_ERROR(packer.Finish());
  prepared.rows = packer.rows();
  const char* const name = UsualTokenizerName(file.path);
  PENSTOCK_RETURN_IF_ERROR(writer->AddFile(name, file.content));
  prepared.tokenizer = JoinPath(options.to, name);
  PENSTOCK_RETURN_IF_ERROR(writer->Finish().status());
  return prepared;
}

}  // namespace penstock
