// Convolution: the three passes of a convolution of fixed shapes, over channels-last images.
//
// The weight and its gradient are as in files, [outputs, inputs / groups, height, width]. oneDNN is fast only with
// formats of its own for them, so a pass packs the weight into scratch memory first, or adds the unpacked gradient last.
// That takes as long as reading the weight a few times: below 1 % of a pass for most layers of ResNet-50, 10 % for the
// widest one at 8 samples. A packed copy of each version would take the memory that schedules keep low. A kernel of 1 x 1
// is a linear map of the channels, whose products read and write the file's format, so that nothing is packed.
//
// The images and the weight that products read are float or bf16; results, the bias and the weight's gradient are float.
// Sums run in float.
#pragma once

#include <dnnl.hpp>

#include "absl/status/statusor.h"
#include "compute/cpu/context.h"
#include "compute/cpu/primitive.h"
#include "compute/cpu/product.h"
#include "model/window.h"

namespace penstock {

struct ConvolutionShape {
  int64_t samples = 0;
  int64_t inputs = 0;   // channels
  int64_t outputs = 0;  // channels
  int64_t groups = 1;
  Window window;
  bool bias = false;
};

class Convolution {
 public:
  Convolution() = default;
  // REQUIRES: `context` outlives it; no pass is running. `type`: f32 or bf16.
  // Errors: those of WithOneDnn and Primitive::Create.
  static absl::StatusOr<Convolution> Create(CpuContext& context, const ConvolutionShape& shape,
                                            dnnl::memory::data_type type);

  // Of the scratch memory that each pass takes for the packed weight.
  int64_t packed_bytes() const { return packed_bytes_; }

  // y = x * weight + bias. `bias`: null without one.
  void Forward(const void* x, const void* weight, const float* bias, void* packed, float* y) const;
  // The gradient dx of x from dy, that of y.
  void BackwardInput(const void* dy, const void* weight, void* packed, float* dx) const;
  // dw += the gradient of the weight.
  void BackwardWeight(const void* x, const void* dy, void* packed, float* dw) const;

 private:
  absl::Status Make(CpuContext& context, const ConvolutionShape& shape,
                    dnnl::memory::data_type type);
  absl::Status MakeProducts(CpuContext& context, const ConvolutionShape& shape,
                            dnnl::memory::data_type type);

  bool bias_ = false;
  bool is_linear_ = false;  // each pass is one product
  MatrixProduct forward_product_, input_product_, weight_product_;
  int64_t packed_bytes_ = 0;
  Primitive forward_, backward_input_, backward_weight_;
  Primitive pack_for_forward_, pack_for_input_, add_unpacked_;
};

}  // namespace penstock
