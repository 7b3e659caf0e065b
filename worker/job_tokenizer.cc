#include "worker/job_tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"
#include "tokenizer/character_tokenizer.h"
#include "tokenizer/limits.h"

namespace penstock {
namespace {

absl::Status CheckFitsPort(absl::string_view key, absl::string_view name,
                           const Tokenizer& tokenizer, const Port& port) {
  if (port.ids == 0 || port.ids >= tokenizer.vocabulary_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      key, ": ", name, " has ", tokenizer.vocabulary_size(), " tokens, but the model's input ",
      port.name, " takes ids below ", port.ids, "; make the model's vocabulary as large"));
}

}  // namespace

absl::StatusOr<JobTokenizer> OpenJobTokenizer(const DataRequest& request, absl::string_view key,
                                              const std::string& path, const std::string& sha256,
                                              const Port& port) {
  absl::StatusOr<TokenizerFile> file = OpenTokenizerFile(
      request.files, JoinPath(request.root, path),
      [&](const TokenizerFile& read) { return CheckFileOfJob(read.path, read.content, sha256); });
  if (!file.ok()) return Annotate(file.status(), key);
  PENSTOCK_RETURN_IF_ERROR(CheckFitsPort(key, file->path, *file->tokenizer, port));
  return JobTokenizer{std::move(file->tokenizer),
                      {UsualTokenizerName(file->path), std::move(file->content)}};
}

absl::StatusOr<JobTokenizer> MakeCharacterTokenizer(absl::string_view key, absl::string_view text,
                                                    const Port& port) {
  std::string content = CharacterTokenizerJson(text);
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = ParseTokenizerJson(content);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), key);
  PENSTOCK_RETURN_IF_ERROR(CheckFitsPort(key, "the text", **tokenizer, port));
  return JobTokenizer{*std::move(tokenizer), {kTokenizerJsonName, std::move(content)}};
}

absl::StatusOr<std::string> DigestOfTokenizer(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string file, FindTokenizerFile(RealFiles(), path));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string content,
                            RealFiles().Read(file, kTokenizerFileBytesMax));
  return Sha256Hex(content);
}

}  // namespace penstock
