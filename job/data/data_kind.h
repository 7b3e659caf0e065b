// DataKind: what one kind of data (data.text, data.records, ...) means for a job. All that asks a job for its data asks
// here, so that a new kind is a file beside these, a row in data_kind.cc, and its opener in worker/data_opener.h.
//
// Plain values and functions without I/O.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "checkpoint/fingerprint.h"
#include "model/graph.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// A path in a job that data is read from, with the digest of what is there. Pointers are into the job.
struct DataInput {
  std::string key;  // "data.text.path"
  std::string* path = nullptr;
  std::string sha256_key;  // "data.text.sha256"
  std::string* sha256 = nullptr;
  // Of a message about the path: which flags name another.
  std::string remedy;
  enum class Use : uint8_t {
    kSamples,     // of training, and of validation if nothing else is for that
    kValidation,  // of validation alone
    kTokenizer,
  };
  Use use = Use::kSamples;
};

struct DataKind {
  v1::DataSpec::SourceCase source;
  absl::string_view key;  // "data.text"

  // Fills the defaults that no key says of itself.
  void (*fill_defaults)(v1::DataSpec& data);
  // Errors: InvalidArgument naming the key. REQUIRES: defaults are filled in.
  absl::Status (*check)(const v1::JobSpec& spec);
  // Errors: InvalidArgument naming the key, if it is known by now that a sample has not what the model reads.
  absl::Status (*fits)(const v1::DataSpec& data, const ModelGraph& model);
  // The paths that are read, the one that --data names first; none for data that is made up.
  std::vector<DataInput> (*inputs)(v1::DataSpec& data);
  // What says which samples a step of training sees.
  Fingerprint (*fingerprint)(const v1::DataSpec& data);
};

// REQUIRES: `data` has a source.
const DataKind& DataKindOf(const v1::DataSpec& data);

// Errors: InvalidArgument naming the key of what was put to the cluster (base/put_path.h) where it cannot be that, or whose digest
// is none, or another than the job's. REQUIRES: `data` has a source.
absl::Status CheckPutData(const v1::DataSpec& data);

// As DataKind, for data that may have no source yet. The digests of files that were put are filled in, too.
void FillDataDefaults(v1::DataSpec& data);

// "data.text.sha256: is "XYZ"; expected 64 digits of 0-9 and a-f", unless it is, or empty.
absl::Status CheckDigest(absl::string_view key, const std::string& sha256);

// What a kind whose validation is either data of its own or the last part of that of training says of it in the job.
struct ValidationPart {
  absl::string_view kind;      // "data.records"
  absl::string_view own_data;  // what its key `validation` names: "a directory that is"
  absl::string_view no_data;   // "no directory"
  bool has_own_data = false;
  double fraction = 0.0;      // its key `validation_fraction`
  const std::string& sha256;  // its key `validation_sha256`
};
// Errors: InvalidArgument naming the key.
absl::Status CheckValidationPart(const v1::JobSpec& spec, const ValidationPart& part);
// The fraction where a job says none.
double DefaultValidationFraction(bool has_own_data);

// "data.records: has records that stand for themselves, but lstm (lstm, carried) goes on where ...", unless the model
// carries nothing from step to step. `samples`: what they are.
absl::Status CheckCarriesNothing(absl::string_view key, absl::string_view samples,
                                 const ModelGraph& model);

// The words in data.text.tokenizer, where other ones are paths.
inline constexpr char kByteTokenizer[] = "bytes";
inline constexpr char kCharacterTokenizer[] = "characters";
// The word in the key `order` for parallel streams (data/text_streams.h).
inline constexpr char kContiguousOrder[] = "contiguous";
// The word there for microbatches of windows that follow one another.
inline constexpr char kBlockOrder[] = "blocks";

// Of an input that is a tokenizer.
inline constexpr char kTokenizerRemedy[] =
    "name a tokenizer.json, a .model of SentencePiece, or a directory with either";

// Whether `model` reads what a sequence of tokens gives: tokens and, as the targets of the loss, those after them, then maybe
// their positions in their documents (model/documents.h), which data.text does not know. `key`: of the data; `order`: their order, which for a model that carries its state must be contiguous.
// Errors: InvalidArgument naming the key.
absl::Status CheckReadsTokens(absl::string_view key, absl::string_view order,
                              const ModelGraph& model);

// Whether `model` predicts masked tokens: `tokens` and, as targets of a loss that can leave some out, `targets`; maybe
// `segments` and `lengths`. Errors: InvalidArgument naming the key.
inline constexpr char kSegmentsPort[] = "segments";
inline constexpr char kLengthsPort[] = "lengths";
absl::Status CheckReadsMasked(absl::string_view key, const ModelGraph& model);

// Each kind in its own file.
extern const DataKind kTextKind;
extern const DataKind kTokensKind;
extern const DataKind kRecordsKind;
extern const DataKind kPairsKind;
extern const DataKind kSyntheticKind;

}  // namespace penstock
