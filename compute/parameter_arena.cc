#include "compute/parameter_arena.h"

#include <string>
#include <variant>

#include "base/sha256.h"

namespace penstock {
namespace {

constexpr int64_t kAlignmentFloats = 16;

int64_t Padded(int64_t floats) {
  return (floats + kAlignmentFloats - 1) / kAlignmentFloats * kAlignmentFloats;
}

uint64_t IdentityOf(const std::string& name) {
  return std::stoull(Sha256Hex("parameter " + name).substr(0, 16), nullptr, 16);
}

// Embeddings and heads are matrices too, but one side of theirs is the vocabulary.
bool MapsHiddenFeatures(const LayerSpec& layer, const ParameterSpec& parameter) {
  return parameter.shape.size() == 2 && (std::holds_alternative<AttentionLayer>(layer.config) ||
                                         std::holds_alternative<MlpLayer>(layer.config));
}

bool IsTiedHead(const LayerSpec& layer) {
  const auto* head = std::get_if<HeadLayer>(&layer.config);
  return head != nullptr && head->tied;
}

}  // namespace

ParameterArena::ParameterArena(absl::Span<const LayerSpec> layers) {
  if (layers.empty()) {
    return;
  }
  // The embedding is the first layer of the chain and the head the last, so a use of the tied weight is
  // at an end of the stage.
  const bool has_tied_head = IsTiedHead(layers.back());
  const bool has_embedding = std::holds_alternative<EmbeddingLayer>(layers.front().config);
  const bool aliased = has_tied_head && has_embedding;
  if (has_tied_head) {
    tied_count_ = layers.back().parameters.front().size();
  }
  // A head without the embedding keeps a copy of the tied weight, which goes first; with the
  // embedding, the embedding's token weight is first anyway.
  if (has_tied_head && !has_embedding) {
    weight_count_ = Padded(tied_count_);
  }
  for (const LayerSpec& layer : layers) {
    const bool tied_head = IsTiedHead(layer);
    std::vector<int64_t>& offsets = weights_.emplace_back();
    std::vector<ParameterSlice>& slices = slices_.emplace_back();
    for (const ParameterSpec& parameter : layer.parameters) {
      int64_t offset = 0;
      if (!tied_head) {
        offset = weight_count_;
        weight_count_ += Padded(parameter.size());
      }
      offsets.push_back(offset);
      if (!(tied_head && aliased)) {
        ParameterSlice& slice = slices.emplace_back(
            ParameterSlice{offset, parameter.size(), parameter.decays, IdentityOf(parameter.name)});
        if (MapsHiddenFeatures(layer, parameter)) {
          slice.rows = parameter.shape[0];
          slice.columns = parameter.shape[1];
        }
      }
    }
  }
  gradients_ = weights_;
  gradient_count_ = weight_count_;
  if (aliased) {
    gradients_.back().front() = head_gradient_offset();
    gradient_count_ += Padded(tied_count_);
  }
}

}  // namespace penstock
