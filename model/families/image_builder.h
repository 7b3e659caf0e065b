// ImageBuilder: what the families of image classifiers share, over a GraphBuilder.
//
// Thread-compatible.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/families/images.h"
#include "model/graph_builder.h"

namespace penstock {

class ImageBuilder {
 public:
  // Adds the ports. REQUIRES: CheckImage(image) is OK.
  ImageBuilder(std::string architecture, const ImageConfig& image);

  GraphBuilder& graph() { return graph_; }
  void BeginLayer(std::string name) { graph_.BeginLayer(std::move(name)); }
  // The node that turns pixels into numbers, in the layer that has begun.
  void AddPixels();
  // A node that reads the one before, or `inputs`; its name.
  std::string Add(std::string op, std::string name, Attributes attributes = {},
                  std::vector<std::string> inputs = {});
  // conv2d without a bias, then batch_norm, named apart as torchvision does.
  std::string AddConvolutionAndNorm(const std::string& convolution, const std::string& norm,
                                    Attributes attributes, std::vector<std::string> inputs = {});
  // The loss over the node before; its layer has begun.
  absl::StatusOr<ModelGraph> Finish() &&;

 private:
  GraphBuilder graph_;
  const ImageConfig image_;
};

absl::Status CheckImage(const ImageConfig& image, int64_t size_min);
// Errors: "KEY: is VALUE; expected one of ...".
absl::Status CheckOneOf(const std::string& key, int64_t value, const std::vector<int64_t>& known);

}  // namespace penstock
