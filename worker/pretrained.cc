#include "worker/pretrained.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/sha256.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_files.h"
#include "compute/initial_weights.h"
#include "model/lora.h"

namespace penstock {
namespace {

// Rows behind the context are left out.
constexpr char kPositions[] = "wpe.weight";
constexpr char kTiedHead[] = "lm_head.weight";

// Tensors that transformers writes, or wrote, and does not read as weights: masks, frequencies, positions, and a head for
// the next sentence.
constexpr const char* kIgnoredEndings[] = {".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq",
                                           "embeddings.position_ids"};
// Heads, where the model has another one.
constexpr const char* kHeads[] = {"cls.", "bert.pooler.", "pooler.", "classifier."};

// The names under which files may have a parameter, the present one first.
std::vector<std::string> NamesInFiles(const std::string& name) {
  std::vector<std::string> names = {name, absl::StrCat("transformer.", name)};
  for (const char* base : {"model.", "bert."}) {
    absl::string_view bare = name;
    if (absl::ConsumePrefix(&bare, base)) names.emplace_back(bare);
  }
  for (const auto& [ending, older] : {std::pair("LayerNorm.weight", "LayerNorm.gamma"),
                                      std::pair("LayerNorm.bias", "LayerNorm.beta")}) {
    for (size_t i = 0, count = names.size(); i < count; ++i) {
      absl::string_view bare = names[i];
      if (absl::ConsumeSuffix(&bare, ending)) names.push_back(absl::StrCat(bare, older));
    }
  }
  return names;
}

std::vector<BufferSpec> BuffersOf(const ModelGraph& model, const LayerSpec& layer,
                                  BufferSpec::Kind kind) {
  std::vector<BufferSpec> buffers;
  for (int node = layer.first_node; node < layer.end_node(); ++node) {
    for (const BufferSpec& buffer : model.nodes[node].buffers) {
      if (buffer.kind == kind) buffers.push_back(buffer);
    }
  }
  return buffers;
}

// What a layer has from its files: its parameters, and its running statistics in the form of parameters.
std::vector<ParameterSpec> StoredOf(const ModelGraph& model, const LayerSpec& layer) {
  std::vector<ParameterSpec> stored = layer.parameters;
  for (BufferSpec& buffer : BuffersOf(model, layer, BufferSpec::Kind::kStatistic)) {
    stored.push_back({.name = std::move(buffer.name),
                      .shape = std::move(buffer.shape),
                      .init = ParameterSpec::Init::kConstant,
                      .init_scale = buffer.initial});
  }
  return stored;
}

// Adds what a layer carries from step to step as the stage has it, because it starts as it does in every job.
void AddCarried(absl::Span<const BufferSpec> carried, int layer, Stage& stage,
                std::vector<NamedArray>& arrays) {
  if (carried.empty()) return;
  for (NamedArray& kept : stage.LayerWeights(layer)) {
    const bool is_carried =
        std::any_of(carried.begin(), carried.end(),
                    [&](const BufferSpec& buffer) { return buffer.name == kept.name; });
    if (is_carried) arrays.push_back(std::move(kept));
  }
}

// One layer after the other of a model, from its files.
class PretrainedLayers {
 public:
  // `tensors`: see WeightFiles::Open.
  static absl::StatusOr<PretrainedLayers> Open(
      const FirstWeights& request,
      const std::optional<std::set<std::string>>& tensors = std::nullopt) {
    PENSTOCK_ASSIGN_OR_RETURN(
        WeightFiles files,
        WeightFiles::Open(request.files,
                          JoinPath(request.root, request.model.pretrained().directory()), tensors));
    return PretrainedLayers(request, std::move(files));
  }

  // All parameters and statistics of a layer; adds up the digest of those that are in files.
  absl::StatusOr<std::vector<NamedArray>> Read(int layer, const std::function<bool()>& stop,
                                               Sha256& digest) {
    std::vector<NamedArray> arrays;
    std::set<std::string> there;  // of another node of the layer, too
    const LayerSpec& spec = request_.job.model.layers[layer];
    for (const ParameterSpec& parameter : StoredOf(request_.job.model, spec)) {
      if (!there.insert(parameter.name).second) continue;
      if (stop())
        return absl::CancelledError(
            absl::StrCat("interrupted while ", files_.directory(), " was read"));
      NamedArray& array = arrays.emplace_back(NamedArray{parameter.name, parameter.shape, {}});
      PENSTOCK_ASSIGN_OR_RETURN(const std::string* const name, Find(spec, parameter));
      if (name == nullptr) {
        array.values = InitialWeights(parameter, request_.job.seed);
        continue;
      }
      array.values.resize(parameter.size());
      PENSTOCK_RETURN_IF_ERROR(files_.Read(*name, absl::MakeSpan(array.values)));
      digest.Update(array.values.data(), array.values.size() * sizeof(float));
    }
    return arrays;
  }

  // A checkpoint's files are what its manifest says.
  absl::Status CheckFiles() const {
    if (!files_.is_checkpoint()) return absl::OkStatus();
    return VerifyCheckpoint(request_.files, files_.directory()).status();
  }

  // REQUIRES: all layers were read.
  absl::Status CheckNothingIsLeft() const {
    for (const std::string& name : files_.names()) {
      if (read_.count(name) > 0 || IsIgnored(name)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          files_.Describe(name),
          ": the model has no parameter of this name, so the directory is of another model; ",
          files_.is_checkpoint() ? "describe the model as the checkpoint's job did"
                                 : "use its config.json, or leave the tensor out"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckDigest(int layer, const std::string& digest) const {
    const LayerSpec& spec = request_.job.model.layers[layer];
    if (request_.model.pretrained().layer_sha256().empty()) return absl::OkStatus();
    const std::string& expected = request_.model.pretrained().layer_sha256(spec.number);
    if (digest == expected) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(files_.directory(), ": the weights of layer ", spec.name, " have the SHA-256 ",
                     digest, ", the job (model.pretrained.layer_sha256) says ", expected,
                     "; every worker needs the directory that the job was made with"));
  }

 private:
  PretrainedLayers(const FirstWeights& request, WeightFiles files)
      : request_(request), files_(std::move(files)) {}

  // The tensor of a parameter of a layer; null if it is to be sampled.
  absl::StatusOr<const std::string*> Find(const LayerSpec& layer, const ParameterSpec& parameter) {
    // A use that was untied has the values of the first one, if the files do not have it untied as well.
    const bool has_own = parameter.initial_as.empty() || files_.Find(parameter.name) != nullptr;
    const std::string& wanted = has_own ? parameter.name : parameter.initial_as;
    for (std::string& name : NamesInFiles(wanted)) {
      const TensorType* const type = files_.Find(name);
      if (type == nullptr) continue;
      PENSTOCK_RETURN_IF_ERROR(CheckShape(layer, parameter, *type));
      return &*read_.insert(std::move(name)).first;
    }
    // Adapters begin where the model is.
    const bool is_of_adapter = absl::EndsWith(wanted, kLoraA) || absl::EndsWith(wanted, kLoraB);
    const auto& sampled = request_.model.pretrained().sampled();
    const bool may_be_sampled =
        is_of_adapter ||
        std::any_of(sampled.begin(), sampled.end(), [&](const std::string& beginning) {
          return absl::StartsWith(wanted, beginning);
        });
    if (may_be_sampled) return nullptr;
    return absl::NotFoundError(absl::StrCat(files_.directory(), ": has no tensor ", wanted, " [",
                                            absl::StrJoin(parameter.shape, ", "), "], which layer ",
                                            layer.name,
                                            " reads; name a directory of this model, or let the "
                                            "parameter be sampled with model.pretrained.sampled"));
  }

  absl::Status CheckShape(const LayerSpec& layer, const ParameterSpec& parameter,
                          const TensorType& type) const {
    if (type.shape == parameter.shape) return absl::OkStatus();
    const bool has_more_positions = parameter.name == kPositions && type.shape.size() == 2 &&
                                    type.shape[0] > parameter.shape[0] &&
                                    type.shape[1] == parameter.shape[1];
    if (has_more_positions) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        files_.Describe(type.name), ": expected [", absl::StrJoin(parameter.shape, ", "),
        "], the shape of ", parameter.name, " in layer ", layer.name,
        files_.is_checkpoint() ? "; describe the model as the checkpoint's job did"
                               : "; config.json and the weights are of two models"));
  }

  bool IsCarried(const std::string& name) const {
    const ModelGraph& model = request_.job.model;
    return std::any_of(model.layers.begin(), model.layers.end(), [&](const LayerSpec& layer) {
      const std::vector<BufferSpec> carried = BuffersOf(model, layer, BufferSpec::Kind::kCarried);
      return std::any_of(carried.begin(), carried.end(),
                         [&](const BufferSpec& buffer) { return buffer.name == name; });
    });
  }

  // transformers may store a tied head beside the table that it is. In a checkpoint it is a weight of its own.
  bool HasHeadTwice() const {
    const ModelGraph& model = request_.job.model;
    return !files_.is_checkpoint() && (model.tied() || model.untied);
  }

  bool IsIgnored(const std::string& name) const {
    const auto ends = [&](const char* ending) { return absl::EndsWith(name, ending); };
    const auto begins = [&](const char* beginning) { return absl::StartsWith(name, beginning); };
    return std::any_of(std::begin(kIgnoredEndings), std::end(kIgnoredEndings), ends) ||
           std::any_of(std::begin(kHeads), std::end(kHeads), begins) ||
           (name == kTiedHead && HasHeadTwice()) || IsCarried(name);
  }

  const FirstWeights& request_;
  WeightFiles files_;
  std::set<std::string> read_;
};

constexpr auto kNever = [] { return false; };

}  // namespace

absl::Status LoadFirstWeights(const FirstWeights& request, LayerRange layers,
                              absl::FunctionRef<absl::Status()> may_go_on, Stage& stage) {
  stage.InitializeWeights();  // the optimizer's state, too
  if (!request.model.has_pretrained()) return absl::OkStatus();
  std::set<std::string> tensors;
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    tensors.merge(NamesOfFirstWeights(request.job.model, layer));
  }
  PENSTOCK_ASSIGN_OR_RETURN(PretrainedLayers pretrained, PretrainedLayers::Open(request, tensors));
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    Sha256 digest;
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<NamedArray> arrays,
                              pretrained.Read(layer, kNever, digest));
    PENSTOCK_RETURN_IF_ERROR(pretrained.CheckDigest(layer, digest.HexDigest()));
    const ModelGraph& model = request.job.model;
    AddCarried(BuffersOf(model, model.layers[layer], BufferSpec::Kind::kCarried),
               layer - layers.first, stage, arrays);
    PENSTOCK_RETURN_IF_ERROR(Annotate(stage.LoadLayerWeights(layer - layers.first, arrays),
                                      request.model.pretrained().directory()));
  }
  return absl::OkStatus();
}

std::set<std::string> NamesOfFirstWeights(const ModelGraph& model, int layer) {
  std::set<std::string> names;
  for (const ParameterSpec& parameter : StoredOf(model, model.layers[layer])) {
    for (const std::string& wanted : {parameter.name, parameter.initial_as}) {
      if (wanted.empty()) continue;
      for (std::string& name : NamesInFiles(wanted)) names.insert(std::move(name));
    }
  }
  return names;
}

absl::StatusOr<std::vector<std::string>> DigestPretrained(const FirstWeights& request,
                                                          const std::function<bool()>& stop) {
  PENSTOCK_ASSIGN_OR_RETURN(PretrainedLayers pretrained, PretrainedLayers::Open(request));
  PENSTOCK_RETURN_IF_ERROR(pretrained.CheckFiles());
  const ModelGraph& model = request.job.model;
  std::vector<std::string> digests(model.size());
  for (int layer = 0; layer < model.size(); ++layer) {
    Sha256 digest;
    PENSTOCK_RETURN_IF_ERROR(pretrained.Read(layer, stop, digest).status());
    std::string& entry = digests[model.layers[layer].number];
    entry = digest.HexDigest();
    PENSTOCK_RETURN_IF_ERROR(pretrained.CheckDigest(layer, entry));
  }
  PENSTOCK_RETURN_IF_ERROR(pretrained.CheckNothingIsLeft());
  return digests;
}

}  // namespace penstock
