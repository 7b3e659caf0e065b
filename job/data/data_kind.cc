#include "job/data/data_kind.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/put_path.h"
#include "base/sha256.h"
#include "base/status.h"
#include "job/keys/check_fields.h"
#include "model/documents.h"

namespace penstock {
namespace {

constexpr const DataKind* kDataKinds[] = {&kTextKind, &kTokensKind, &kRecordsKind, &kPairsKind,
                                          &kSyntheticKind};

std::string PortsText(const ModelGraph& model) {
  return absl::StrJoin(model.ports, ", ", [](std::string* text, const Port& port) {
    absl::StrAppend(text, port.name, " ", port.type.ToString());
  });
}

const DataKind* FindDataKind(const v1::DataSpec& data) {
  for (const DataKind* kind : kDataKinds) {
    if (kind->source == data.source_case()) return kind;
  }
  return nullptr;
}

// Whether it can be a file that was put by itself, which has no name: a directory and a tokenizer, whose name says its kind,
// cannot.
bool TakesPutFile(const v1::DataSpec& data, const DataInput& input) {
  return (data.has_text() || data.has_tokens()) && input.use != DataInput::Use::kTokenizer;
}

}  // namespace

const DataKind& DataKindOf(const v1::DataSpec& data) {
  const DataKind* const kind = FindDataKind(data);
  PENSTOCK_CHECK(kind != nullptr);
  return *kind;
}

void FillDataDefaults(v1::DataSpec& data) {
  const DataKind* const kind = FindDataKind(data);
  if (kind == nullptr) return;
  kind->fill_defaults(data);
  for (const DataInput& input : kind->inputs(data)) {
    if (!IsPutPath(*input.path) || !input.sha256->empty()) continue;
    const absl::StatusOr<PutPath> put = ParsePutPath(*input.path);
    const bool is_file = put.ok() && !put->is_directory;  // else the coordinator knows the digest
    if (is_file && TakesPutFile(data, input)) *input.sha256 = put->sha256;
  }
}

absl::Status CheckPutData(const v1::DataSpec& data) {
  v1::DataSpec inputs_of = data;
  for (const DataInput& input : DataKindOf(data).inputs(inputs_of)) {
    if (!IsPutPath(*input.path)) continue;
    const absl::StatusOr<PutPath> put = ParsePutPath(*input.path);
    if (!put.ok()) return InvalidKey(input.key, put.status().message());
    if (put->is_directory) continue;
    if (!TakesPutFile(data, input)) {
      return InvalidKey(
          input.key,
          absl::StrCat("names the file ", put->ToString(),
                       ", but what it names has a name or is a directory; `penstock data put` "
                       "prints its path with a / behind the digest"));
    }
    if (*input.sha256 != put->sha256) {
      return InvalidKey(input.sha256_key,
                        absl::StrCat("is ", *input.sha256, ", but ", input.key, " names the file ",
                                     put->ToString(), "; leave one of them out"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDigest(absl::string_view key, const std::string& sha256) {
  if (sha256.empty() || IsSha256Hex(sha256)) return absl::OkStatus();
  return InvalidKey(
      key, absl::StrCat("is \"", sha256.substr(0, 64), "\"; expected 64 digits of 0-9 and a-f"));
}

absl::Status CheckValidationPart(const v1::JobSpec& spec, const ValidationPart& part) {
  const std::string validation = absl::StrCat(part.kind, ".validation");
  if (part.has_own_data && part.fraction > 0.0) {
    return InvalidKey(absl::StrCat(part.kind, ".validation_fraction"),
                      absl::StrCat("is ", part.fraction, ", but ", validation, " names ",
                                   part.own_data, " for validation; leave one of them out"));
  }
  if (!part.has_own_data && !part.sha256.empty()) {
    return InvalidKey(absl::StrCat(part.kind, ".validation_sha256"),
                      absl::StrCat("is there, but ", validation, " names ", part.no_data));
  }
  if (spec.validation().every_steps() > 0 && !part.has_own_data && part.fraction == 0.0) {
    return InvalidKey("validation.every_steps", absl::StrCat("asks for validation, but ", part.kind,
                                                             ".validation_fraction is 0 and ",
                                                             validation, " names ", part.no_data));
  }
  return absl::OkStatus();
}

double DefaultValidationFraction(bool has_own_data) {
  constexpr double kValidationFraction = 0.1;
  return has_own_data ? 0.0 : kValidationFraction;
}

absl::Status CheckCarriesNothing(absl::string_view key, absl::string_view samples,
                                 const ModelGraph& model) {
  const Node* const carrying = model.FindCarrying();
  if (carrying == nullptr) return absl::OkStatus();
  return InvalidKey(
      key, absl::StrCat("has ", samples, " that stand for themselves, but ", carrying->name, " (",
                        carrying->op->name,
                        ", carried) goes on where the same sample of the step before ended; train "
                        "on data.text with order contiguous, or leave carried out"));
}

absl::Status CheckReadsMasked(absl::string_view key, const ModelGraph& model) {
  const std::vector<Port>& ports = model.ports;
  bool fits = model.loss().ignored.has_value() && model.is_port(model.targets());
  for (size_t i = 0; i < ports.size() && fits; ++i) {
    const bool is_sequence = i == 0 || static_cast<int>(i) == model.targets();
    const bool is_known = is_sequence || ports[i].name == kSegmentsPort;
    const size_t dims = is_known ? 1 : 0;
    fits = ports[i].type.dtype == DType::kI32 && ports[i].type.dims.size() == dims &&
           (is_known ? ports[i].type == ports[0].type : ports[i].name == kLengthsPort);
  }
  if (fits && model.targets() != 0) return absl::OkStatus();
  return InvalidKey(
      key, absl::StrCat("gives tokens i32 [context], those that were masked as targets of the same "
                        "shape for a loss that leaves others out, segments i32 [context] and "
                        "lengths i32 [], but the model reads ",
                        PortsText(model), "; use model.bert with head: mlm, or leave masking out"));
}

absl::Status CheckReadsTokens(absl::string_view key, absl::string_view order,
                              const ModelGraph& model) {
  const Node* const carrying = model.FindCarrying();
  if (carrying != nullptr && order != kContiguousOrder) {
    return InvalidKey(
        absl::StrCat(key, ".order"),
        absl::StrCat("is ", order, ", but ", carrying->name, " (", carrying->op->name,
                     ", carried) goes on where the same sample of the step before ended; use "
                     "contiguous, or leave carried out"));
  }
  const std::vector<Port>& ports = model.ports;
  const bool separates = ports.size() == 3 && FindPositionsPort(model) == 2;
  if (separates && key == kTextKind.key) {
    return InvalidKey("model.separate_documents",
                      "is true, but data.text is one document; train on data.tokens, which "
                      "`penstock data prepare tokens` makes, or on data.records");
  }
  const bool fits = (ports.size() == 2 || separates) && ports[0].type.dtype == DType::kI32 &&
                    ports[0].type.dims.size() == 1 && ports[1].type == ports[0].type &&
                    model.nodes.back().inputs.back() == 1;
  if (fits) return absl::OkStatus();
  return InvalidKey(
      key, absl::StrCat("gives tokens i32 [context] and, as the targets of the loss, those after "
                        "them, but the model reads ",
                        PortsText(model),
                        "; change its inputs, or train on data.records, which can have any"));
}

}  // namespace penstock
