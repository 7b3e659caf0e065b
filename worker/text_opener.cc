// data.text: a text for the model's ports (CheckReadsTokens, job/data/data_kind.h), and its digest.
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

absl::StatusOr<std::unique_ptr<DataSource>> OpenText(const DataRequest& request) {
  const v1::TextSpec& spec = request.spec.data().text();
  const std::string path = JoinPath(request.root, spec.path());
  absl::StatusOr<std::string> text =
      ReadFileOfJob(request.files, path, spec.sha256(), request.limits.data_bytes_max);
  if (!text.ok()) return Annotate(text.status(), "training text");
  std::unique_ptr<TokenSequence> tokens;
  std::vector<AttachedFile> attached;
  if (spec.tokenizer() == kByteTokenizer) {
    tokens = std::make_unique<ByteTokens>(*std::move(text));
  } else {
    const Port& port = request.job.model.ports[TokenData::kTokens];
    PENSTOCK_ASSIGN_OR_RETURN(
        JobTokenizer opened,
        spec.tokenizer() == kCharacterTokenizer
            ? MakeCharacterTokenizer("data.text.tokenizer", *text, port)
            : OpenJobTokenizer(request, "data.text.tokenizer", spec.tokenizer(),
                               spec.tokenizer_sha256(), port));
    absl::StatusOr<std::vector<int32_t>> ids = opened.tokenizer->Encode(*text);
    if (!ids.ok()) return Annotate(ids.status(), path);
    tokens = std::make_unique<StoredTokens>(*std::move(ids));
    attached.push_back(std::move(opened.file));
  }
  TokenDataOptions options = TokenOptions(request, spec.order(), spec.validation_fraction());
  options.name = path;
  options.attached = std::move(attached);
  absl::StatusOr<std::unique_ptr<TokenData>> data =
      TokenData::Create(std::move(tokens), nullptr, options);
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

absl::StatusOr<std::string> ReadFileOfJob(Files& files, const std::string& path,
                                          const std::string& sha256, int64_t size_bytes_max) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string content, files.Read(path, size_bytes_max));
  PENSTOCK_RETURN_IF_ERROR(CheckFileOfJob(path, content, sha256));
  return content;
}

absl::Status CheckFileOfJob(const std::string& path, absl::string_view content,
                            const std::string& sha256) {
  if (sha256.empty()) return absl::OkStatus();
  const std::string found = Sha256Hex(content);
  if (found == sha256) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, " is another file than the job's: its SHA-256 is ",
                                          found, ", expected ", sha256));
}

const DataOpener kTextOpener = {
    .source = v1::DataSpec::kText, .open = OpenText, .digest = DigestOfText};

}  // namespace penstock
