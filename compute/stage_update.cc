// Stage: gradients, tied weights and the step.
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "compute/stage.h"

namespace penstock {

void Stage::LayerSquaredNorms(absl::Span<double> norms) {
  PENSTOCK_CHECK(static_cast<int>(norms.size()) == layer_count());
  const bool tied_copy = arena_.tied_count() > 0 && !has_embedding_;
  for (int layer = 0; layer < layer_count(); ++layer) {
    double sum = 0.0;
    for (const ParameterSlice& slice : arena_.slices(layer)) {
      if (tied_copy && slice.offset == 0) {
        continue;  // counts with the embedding's layer, on another stage
      }
      sum += backend_.SquaredNorm(gradients() + slice.offset, slice.count);
    }
    norms[layer] = sum;
  }
}

Tensor Stage::TiedGradient() {
  const EmbeddingLayer* embedding = std::get_if<EmbeddingLayer>(&specs_.front().config);
  const HeadLayer* head = std::get_if<HeadLayer>(&specs_.back().config);
  PENSTOCK_CHECK(embedding != nullptr || (head != nullptr && head->tied));
  const Shape shape = embedding != nullptr ? Shape{embedding->vocabulary, embedding->width}
                                           : Shape{head->vocabulary, head->width};
  return {gradients_, DType::kF32, shape};  // the tied weight starts the arrays
}

void Stage::SetTiedGradient(const Tensor& head, const Tensor& embedding) {
  const Tensor& other = has_embedding_ ? head : embedding;
  const Tensor own = TiedGradient();
  PENSTOCK_CHECK(other.shape == own.shape && other.dtype == own.dtype);
  backend_.AddInto(own.data<float>(), other.data<float>(), own.shape.elements());
}

void Stage::CombineLocalTiedGradients() {
  if (arena_.both_uses()) {
    backend_.AddInto(gradients(), gradients() + arena_.head_gradient_offset(), arena_.tied_count());
  }
}

absl::Status Stage::Step(int64_t version, const StepOptions& options) {
  PENSTOCK_CHECK(static_cast<int>(options.gradient_scales.size()) == layer_count());
  PENSTOCK_ASSIGN_OR_RETURN(
      const WeightVersions::Transition transition,
      versions_.Advance(version, options.keep_replaced, options.oldest_live_version));
  StepArguments arguments;
  arguments.weights = transition.from->weights();
  arguments.next_weights = transition.to->weights();
  arguments.next_bf16 = transition.to->mirror();
  arguments.gradients = gradients();
  arguments.state = optimizer_arrays_;
  arguments.learning_rate = options.learning_rate;
  arguments.update = version;
  for (int layer = 0; layer < layer_count(); ++layer) {
    arguments.gradient_scale = options.gradient_scales[layer];
    optimizer_->Step(arguments, arena_.slices(layer));
  }
  backend_.Fill(gradients(), 0.0f, arena_.gradient_count());
  return absl::OkStatus();
}

}  // namespace penstock
