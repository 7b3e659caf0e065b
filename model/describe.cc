#include "model/describe.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_format.h"

namespace penstock {

std::string Describe(const LayerConfig& config) {
  struct Visitor {
    std::string operator()(const EmbeddingLayer& layer) const {
      return absl::StrFormat("embedding(vocabulary %d, context %d, width %d, dropout %g)",
                             layer.vocabulary, layer.context, layer.width, layer.dropout);
    }
    std::string operator()(const AttentionLayer& layer) const {
      return absl::StrFormat("attention(width %d, heads %d, dropout %g)", layer.width, layer.heads,
                             layer.dropout);
    }
    std::string operator()(const MlpLayer& layer) const {
      return absl::StrFormat("mlp(width %d, hidden %d, dropout %g)", layer.width, layer.hidden,
                             layer.dropout);
    }
    std::string operator()(const NormLayer& layer) const {
      return absl::StrFormat("norm(width %d)", layer.width);
    }
    std::string operator()(const HeadLayer& layer) const {
      return absl::StrFormat("head(vocabulary %d, width %d, %s)", layer.vocabulary, layer.width,
                             layer.tied ? "tied" : "untied");
    }
  };
  return std::visit(Visitor(), config);
}

std::vector<int> FirstLayersOfShapes(const Chain& chain) {
  std::vector<int> firsts;
  for (int i = 0; i < chain.size(); ++i) {
    const bool known = std::any_of(firsts.begin(), firsts.end(), [&](int first) {
      return chain.layers[first].config == chain.layers[i].config;
    });
    if (!known) firsts.push_back(i);
  }
  return firsts;
}

}  // namespace penstock
