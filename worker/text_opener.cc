// data.text: a text for the model's ports (job/data/token_ports.h checks that they are tokens and targets), and its digest.
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"
#include "job/data/data_kind.h"
#include "worker/data_opener.h"
#include "worker/job_tokenizer.h"
#include "worker/token_data.h"

namespace penstock {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

// The content of a file whose digest is `sha256`, or any if it is empty.
absl::StatusOr<std::string> ReadText(Files& files, const std::string& path,
                                     const std::string& sha256, int64_t size_bytes_max) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, files.Read(path, size_bytes_max));
  const std::string found = Sha256Hex(text);
  if (sha256.empty() || found == sha256) return text;
  return absl::DataLossError(absl::StrCat(path, " is another file than the job's: its SHA-256 is ",
                                          found, ", expected ", sha256));
}

absl::StatusOr<std::unique_ptr<DataSource>> OpenText(const DataRequest& request) {
  const v1::TextSpec& spec = request.spec.data().text();
  const std::string path = JoinPath(request.root, spec.path());
  absl::StatusOr<std::string> text =
      ReadText(request.files, path, spec.sha256(), request.limits.data_bytes_max);
  if (!text.ok()) return Annotate(text.status(), "training text");
  std::unique_ptr<TokenSequence> tokens;
  std::vector<AttachedFile> attached;
  if (spec.tokenizer() == kByteTokenizer) {
    tokens = std::make_unique<ByteTokens>(*std::move(text));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(
        JobTokenizer opened,
        OpenJobTokenizer(request, "data.text.tokenizer", spec.tokenizer(), spec.tokenizer_sha256(),
                         request.job.model.ports[TokenData::kTokens]));
    absl::StatusOr<std::vector<int32_t>> ids = opened.tokenizer->Encode(*text);
    if (!ids.ok()) return Annotate(ids.status(), path);
    tokens = std::make_unique<StoredTokens>(*std::move(ids));
    attached.push_back(std::move(opened.file));
  }
  const bool in_streams = request.evaluated.has_value()
                              ? request.job.model.FindCarrying() != nullptr
                              : spec.order() == kContiguousOrder;
  absl::StatusOr<std::unique_ptr<TokenData>> data =
      TokenData::Create(std::move(tokens), nullptr,
                        {.name = path,
                         .validation_fraction = spec.validation_fraction(),
                         .context = request.job.model.ports[TokenData::kTokens].type.dims[0],
                         .order = TokenOrderOf(spec.order()),
                         .needs_validation = request.validates(),
                         .validation_windows = request.validation_samples(),
                         .streams = in_streams ? request.job.batch : 0,
                         .evaluated = request.evaluated,
                         .seed = request.job.seed,
                         .attached = std::move(attached)});
  if (!data.ok()) return Annotate(data.status(), "training text");
  return *std::move(data);
}

absl::StatusOr<std::string> DigestOfText(const std::string& path,
                                         const std::function<bool()>& stop) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  }
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a file"));
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return absl::PermissionDeniedError(absl::StrCat(path, " cannot be read"));
  Sha256 sha256;
  bool is_empty = true;
  std::vector<char> piece(kPieceBytes);
  while (stream.read(piece.data(), kPieceBytes), stream.gcount() > 0) {
    sha256.Update(piece.data(), static_cast<size_t>(stream.gcount()));
    is_empty = false;
    if (stop()) {
      return absl::CancelledError(absl::StrCat("interrupted while ", path, " was read"));
    }
  }
  if (is_empty) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  return sha256.HexDigest();
}

}  // namespace

const DataOpener kTextOpener = {
    .source = v1::DataSpec::kText, .open = OpenText, .digest = DigestOfText};

}  // namespace penstock
