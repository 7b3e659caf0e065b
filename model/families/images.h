// The families of image classifiers: VGG, AlexNet, ResNet and CIFAR's ResNets.
//
// A model reads the ports `image`, u8 [height, width, 3], and `label`, i32 []; its first layer brings pixels to mean 0 and
// variance 1. Parameters are named and laid out as in torchvision, so that its files load as they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/graph.h"

namespace penstock {

struct ImageConfig {
  int64_t size = 224;  // height and width
  int64_t classes = 1000;
  // Of a channel, in the unit of pixels divided by 255; one number for all channels or three.
  std::vector<double> mean = {0.485, 0.456, 0.406};
  std::vector<double> deviation = {0.229, 0.224, 0.225};
  double label_smoothing = 0.0;
  friend bool operator==(const ImageConfig&, const ImageConfig&) = default;
};

// Simonyan and Zisserman, arXiv 1409.1556, configurations A, B, D and E.
struct VggConfig {
  int64_t depth = 16;  // 11, 13, 16, 19
  bool batch_norm = false;
  double dropout = 0.5;
  int64_t hidden = 4096;  // of the two fully connected layers
  ImageConfig image;
  friend bool operator==(const VggConfig&, const VggConfig&) = default;
};

struct AlexNetConfig {
  // "torchvision": one tower, no normalisation (Krizhevsky, arXiv 1404.5997). "2012": local response normalisation and
  // groups, as in Krizhevsky, Sutskever, Hinton, NIPS 2012.
  std::string variant = "torchvision";
  double dropout = 0.5;
  int64_t hidden = 4096;  // of the two fully connected layers
  ImageConfig image;
  friend bool operator==(const AlexNetConfig&, const AlexNetConfig&) = default;
};

// He et al., arXiv 1512.03385, table 1; the stride of a bottleneck is in its 3x3 convolution, as in torchvision.
struct ResNetConfig {
  int64_t depth = 50;  // 18, 34, 50, 101, 152
  ImageConfig image;
  friend bool operator==(const ResNetConfig&, const ResNetConfig&) = default;
};

// The same, section 4.2: 6 n + 2 layers on small images, shortcuts that subsample and add zero channels.
struct CifarResNetConfig {
  int64_t depth = 20;  // 8, 14, 20, 32, 44, 56, 110
  int64_t width = 16;  // channels of the first third
  ImageConfig image = {.size = 32, .classes = 10, .mean = {0.5}, .deviation = {0.25}};
  friend bool operator==(const CifarResNetConfig&, const CifarResNetConfig&) = default;
};

// Errors: InvalidArgument starting with the field.
absl::StatusOr<ModelGraph> BuildVgg(const VggConfig& config);
absl::StatusOr<ModelGraph> BuildAlexNet(const AlexNetConfig& config);
absl::StatusOr<ModelGraph> BuildResNet(const ResNetConfig& config);
absl::StatusOr<ModelGraph> BuildCifarResNet(const CifarResNetConfig& config);

}  // namespace penstock
