#include "job/data/data_kind.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/check.h"
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

// A file that was put is one file by itself, which a tokenizer or a directory of records is not.
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
    const std::optional<std::string> put = PutDigestOf(*input.path);
    if (put.has_value() && TakesPutFile(data, input) && input.sha256->empty()) *input.sha256 = *put;
  }
}

std::optional<std::string> PutDigestOf(absl::string_view path) {
  if (!absl::ConsumePrefix(&path, kPutPrefix)) return std::nullopt;
  return std::string(path);
}

absl::Status CheckPutData(const v1::DataSpec& data) {
  v1::DataSpec inputs_of = data;
  for (const DataInput& input : DataKindOf(data).inputs(inputs_of)) {
    const std::optional<std::string> put = PutDigestOf(*input.path);
    if (!put.has_value()) continue;
    if (!TakesPutFile(data, input)) {
      return InvalidKey(input.key,
                        "names a file that was put to the cluster, which only data.text.path and "
                        "the token files of data.tokens can be; name a path that all workers find");
    }
    if (put->empty()) return InvalidKey(input.key, "is \"sha256:\", without a digest");
    PENSTOCK_RETURN_IF_ERROR(CheckDigest(input.key, *put));
    if (*input.sha256 != *put) {
      return InvalidKey(input.sha256_key,
                        absl::StrCat("is ", *input.sha256, ", but ", input.key,
                                     " names the file sha256:", *put, "; leave one of them out"));
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
