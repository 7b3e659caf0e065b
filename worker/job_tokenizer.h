// The tokenizer of a job's data: opened, checked, and as the file that checkpoints take along.
//
// Plain functions.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "model/graph.h"
#include "tokenizer/tokenizer.h"
#include "worker/data_opener.h"

namespace penstock {

struct JobTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  AttachedFile file;
};

// `key`: "data.text.tokenizer", whose value is `path`; `sha256`: of its file, or empty.
// Errors: those of LoadTokenizer; DataLoss (another file than the job's), InvalidArgument (`port` of the model takes fewer ids
// than it has), all naming the key.
absl::StatusOr<JobTokenizer> OpenJobTokenizer(const DataRequest& request, absl::string_view key,
                                              const std::string& path, const std::string& sha256,
                                              const Port& port);

// The characters of `text` as a tokenizer. Errors: InvalidArgument (`port` takes fewer ids than there are, or the text has no
// characters), OutOfRange (more than limits.h allows), naming the key.
absl::StatusOr<JobTokenizer> MakeCharacterTokenizer(absl::string_view key, absl::string_view text,
                                                    const Port& port);

// The digest of a tokenizer's file, or of the file of that purpose in a folder. Errors: as DataOpener::digest.
absl::StatusOr<std::string> DigestOfTokenizer(const std::string& path);

}  // namespace penstock
