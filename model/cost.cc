// FLOPs of each layer for one sample, as the matrix products have them; a multiply-add is two. Norms,
// biases, GELU and dropout are left out: they are bound by memory and small.
#include "model/chain.h"

namespace penstock {
namespace {

// y[rows, outputs] = x[rows, inputs] W: the same count for y, for dx and for dW.
double MatrixProduct(double rows, double inputs, double outputs) {
  return 2.0 * rows * inputs * outputs;
}

struct CostOf {
  double time;

  LayerCost operator()(const EmbeddingLayer& layer) const {
    // Adds, no products: one per element forward and two backward (token and position).
    const double elements = time * static_cast<double>(layer.width);
    return {elements, 0.0, 2.0 * elements};
  }
  LayerCost operator()(const AttentionLayer& layer) const {
    const auto width = static_cast<double>(layer.width);
    const double linear =
        MatrixProduct(time, width, 3.0 * width) + MatrixProduct(time, width, width);
    // Scores and their product with the values, of which the causal half is computed. Backward
    // computes four such products, and the scores a second time.
    const double product = MatrixProduct(time, width, time) / 2.0;
    return {linear + 2.0 * product, linear + 5.0 * product, linear};
  }
  LayerCost operator()(const MlpLayer& layer) const {
    const double linear = 2.0 * MatrixProduct(time, static_cast<double>(layer.width),
                                              static_cast<double>(layer.hidden));
    return {linear, linear, linear};
  }
  LayerCost operator()(const NormLayer&) const { return {}; }
  LayerCost operator()(const HeadLayer& layer) const {
    const double linear = MatrixProduct(time, static_cast<double>(layer.width),
                                        static_cast<double>(layer.vocabulary));
    return {linear, linear, linear};
  }
};

}  // namespace

LayerCost EstimateCost(const Chain& chain, const LayerSpec& layer) {
  return std::visit(CostOf{static_cast<double>(chain.context)}, layer.config);
}

}  // namespace penstock
