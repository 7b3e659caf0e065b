#include "tests/compute/op_passes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr float kLossScale = 0.75f;  // as tests/parity/op_numbers.py has it

bool IsRead(InputSet set, size_t input) { return (set >> input & 1) != 0; }

int64_t RoundedUp(int64_t count) { return (count + 15) / 16 * 16; }

}  // namespace

OpPasses::OpPasses(Backend& backend, const OpCase& op_case, Precision precision)
    : backend_(backend), case_(op_case), node_(op_case.MakeNode()) {
  absl::StatusOr<std::unique_ptr<OpKernels>> made = backend.MakeKernels(
      {.node = node_, .inputs = op_case.InputTypes(), .samples = op_case.samples}, precision);
  if (!made.ok()) ADD_FAILURE() << made.status();
  PENSTOCK_CHECK(made.ok());
  kernels_ = *std::move(made);
  needs_ = kernels_->tape_needs();
  for (const ParameterSpec& parameter : node_.parameters) {
    offsets_.push_back(weight_count_);
    weight_count_ += RoundedUp(parameter.size());
  }
  for (const BufferSpec& buffer : node_.buffers) {
    buffer_offsets_.push_back(buffer_count_);
    buffer_count_ += RoundedUp(buffer.size());
  }
}

PassContext OpPasses::Context(bool training) const {
  return {.seed = 5,
          .draw = node_.draw,
          .first_sample = 100,
          .training = training,
          .updates_buffers = training};
}

OpValues OpPasses::Values(uint32_t number) const {
  OpValues values;
  for (size_t i = 0; i < case_.inputs.size(); ++i) {
    const OpCase::Input& input = case_.inputs[i];
    const NumbersName name = {case_, NumbersFor::kInput, static_cast<uint32_t>(i), number};
    const int64_t count = case_.samples * input.type.elements();
    values.inputs.push_back(input.type.dtype == DType::kF32 ? Numbers(name, count, input.scale)
                                                            : std::vector<float>());
  }
  for (size_t p = 0; p < node_.parameters.size(); ++p) {
    values.parameters.push_back(Numbers({case_, NumbersFor::kParameter, static_cast<uint32_t>(p)},
                                        node_.parameters[p].size()));
  }
  return values;
}

std::vector<float> OpPasses::GradOutput(uint32_t number) const {
  if (is_loss()) return {kLossScale};
  return Numbers({case_, NumbersFor::kGradOutput, 0, number}, output_count());
}

OpPasses::Microbatch::Microbatch(OpPasses& passes, uint32_t number, const OpValues& values,
                                 Options options)
    : passes_(passes), number_(number), options_(options), memory_(passes.backend_) {
  const TapeNeeds& needs = passes.needs_;
  std::vector<float> flat(passes.weight_count_, 0.0f);
  for (size_t p = 0; p < values.parameters.size(); ++p) {
    std::copy(values.parameters[p].begin(), values.parameters[p].end(),
              flat.begin() + passes.offsets_[p]);
  }
  weights_ = memory_.ToDevice(flat, {passes.weight_count_});
  mirror_ = memory_.Poisoned(DType::kBf16, {passes.weight_count_});
  if (!flat.empty()) {
    passes.backend_.ConvertToBf16(mirror_.data<uint16_t>(), weights_.data<float>(),
                                  passes.weight_count_);
  }
  gradients_ = memory_.ToDevice(std::vector<float>(passes.weight_count_, options.initial_gradient),
                                {passes.weight_count_});
  PutInputs(values);
  PutBuffers();
  PutStates();
  // A value that is passed on is the input's memory.
  output_ =
      needs.passes_input ? inputs_[0] : memory_.Poisoned(DType::kF32, {passes.output_count()});
  poisoned_output_ = memory_.Poisoned(DType::kF32, {passes.output_count()});
  stash_ = memory_.Poisoned(DType::kU8, {needs.stash_bytes});
  kept_ = memory_.Poisoned(DType::kU8, {needs.kept_bytes});
  weight_stash_ = memory_.Poisoned(DType::kU8, {needs.weight_stash_bytes});
}

void OpPasses::Microbatch::PutInputs(const OpValues& values) {
  const OpCase& of = passes_.case_;
  for (size_t i = 0; i < of.inputs.size(); ++i) {
    const OpCase::Input& input = of.inputs[i];
    const int64_t count = of.samples * input.type.elements();
    poisoned_inputs_.push_back(memory_.Poisoned(input.type.dtype, {count}));
    if (input.type.dtype == DType::kF32) {
      inputs_.push_back(memory_.ToDevice(values.inputs[i], {count}));
      continue;
    }
    std::vector<uint32_t> hashes =
        Hashes({of, NumbersFor::kInput, static_cast<uint32_t>(i), number_}, count);
    inputs_.push_back(memory_.Poisoned(input.type.dtype, {count}));
    if (input.type.dtype == DType::kI32) {
      for (uint32_t& hash : hashes) hash %= static_cast<uint32_t>(input.below);
      passes_.backend_.CopyToDevice(inputs_.back().buffer.data(), hashes.data(), count * 4);
    } else {
      const std::vector<uint8_t> bytes(hashes.begin(), hashes.end());
      passes_.backend_.CopyToDevice(inputs_.back().buffer.data(), bytes.data(), count);
    }
  }
}

void OpPasses::Microbatch::PutBuffers() {
  std::vector<float> flat(passes_.buffer_count_, 0.0f);
  for (size_t b = 0; b < passes_.buffer_offsets_.size(); ++b) {
    const BufferSpec& spec = passes_.node_.buffers[b];
    std::fill_n(flat.begin() + passes_.buffer_offsets_[b], spec.size(),
                static_cast<float>(spec.initial));
  }
  buffers_ = memory_.ToDevice(flat, {passes_.buffer_count_});
}

void OpPasses::Microbatch::PutStates() {
  for (size_t b = 0; b < passes_.node_.buffers.size(); ++b) {
    states_.emplace_back();
    next_states_.emplace_back();
    if (!passes_.is_carried(b)) continue;
    const int64_t count = passes_.case_.samples * passes_.node_.buffers[b].size();
    const NumbersName name = {passes_.case_, NumbersFor::kState, static_cast<uint32_t>(b), number_};
    states_.back() = memory_.ToDevice(Numbers(name, count), {count});
    next_states_.back() = memory_.Poisoned(DType::kF32, {count});
  }
}

Tape OpPasses::Microbatch::TapeOf(InputSet read) {
  Tape tape;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    tape.inputs[i] = (IsRead(read, i) ? inputs_ : poisoned_inputs_)[i].buffer.data();
  }
  for (size_t b = 0; b < passes_.buffer_offsets_.size(); ++b) {
    tape.buffers[b] = buffers_.data<float>() + passes_.buffer_offsets_[b];
  }
  const auto data = [](const Tensor& block) { return block ? block.buffer.data() : nullptr; };
  tape.output = poisoned_output_.buffer.data();
  tape.stash = data(stash_);
  tape.kept = data(kept_);
  tape.weight_stash = data(weight_stash_);
  tape.loss_scale = kLossScale;
  return tape;
}

void OpPasses::Microbatch::Poison(Tensor& tensor) {
  if (tensor) tensor = memory_.Poisoned(tensor.dtype, tensor.shape);
}

void OpPasses::Microbatch::Forward() {
  if (passes_.needs_.passes_input) return;
  Tape tape = TapeOf(kAllInputs);
  tape.output = output_.buffer.data();
  tape.weight_stash = nullptr;
  for (size_t b = 0; b < states_.size(); ++b) {
    if (!states_[b]) continue;
    tape.states[b] = states_[b].data<float>();
    tape.next_states[b] = next_states_[b].data<float>();
  }
  EXPECT_THAT(
      passes_.kernels_->Forward(
          passes_.Context(options_.training),
          {weights_.data<float>(), mirror_.data<uint16_t>(), passes_.offsets_.data()}, tape),
      IsOk());
}

void OpPasses::Microbatch::BackwardInput() {
  const auto wants_gradient = [&](const Tensor& input) {
    return options_.wants_grad_inputs && input.dtype == DType::kF32;
  };
  // As plans have it: a node is not asked where there is nothing to do.
  if (passes_.node_.parameters.empty() &&
      std::none_of(inputs_.begin(), inputs_.end(), wants_gradient)) {
    return;
  }
  const TapeNeeds& needs = passes_.needs_;
  Tape tape = TapeOf(needs.inputs_for_input);
  if (needs.output_for_input) tape.output = output_.buffer.data();
  const std::vector<float> gradient = passes_.GradOutput(number_);
  const Shape shape = {passes_.output_count()};
  grad_output_ = memory_.ToDevice(gradient, shape);
  poisoned_grad_output_ = memory_.Poisoned(DType::kF32, shape);
  tape.grad_output = passes_.is_loss() ? nullptr : grad_output_.buffer.data();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    grad_inputs_.emplace_back();
    if (!wants_gradient(inputs_[i])) continue;
    if (passes_.passes_gradient(i)) {
      grad_inputs_.back() = grad_output_;
      continue;
    }
    grad_inputs_.back() = memory_.Poisoned(DType::kF32, inputs_[i].shape);
    tape.grad_inputs[i] = grad_inputs_.back().buffer.data();
  }
  EXPECT_THAT(
      passes_.kernels_->BackwardInput(
          passes_.Context(options_.training),
          {weights_.data<float>(), mirror_.data<uint16_t>(), passes_.offsets_.data()}, tape),
      IsOk());
  Poison(stash_);
}

void OpPasses::Microbatch::BackwardWeight() {
  if (passes_.node_.parameters.empty()) return;
  Tape tape = TapeOf(passes_.needs_.inputs_for_weight);
  tape.stash = nullptr;
  if (!passes_.is_loss()) {
    tape.grad_output =
        (passes_.needs_.grad_output_for_weight ? grad_output_ : poisoned_grad_output_)
            .buffer.data();
  }
  EXPECT_THAT(
      passes_.kernels_->BackwardWeight(passes_.Context(options_.training),
                                       {gradients_.data<float>(), passes_.offsets_.data()}, tape),
      IsOk());
}

OpResults OpPasses::Microbatch::results() {
  OpResults results;
  results.output = memory_.ToHost(output_);
  for (const Tensor& gradient : grad_inputs_) {
    results.grad_inputs.push_back(gradient ? memory_.ToHost(gradient) : std::vector<float>());
  }
  for (size_t p = 0; p < passes_.offsets_.size(); ++p) {
    results.gradients.push_back(memory_.ToHost(gradients_.data<float>() + passes_.offsets_[p],
                                               passes_.node_.parameters[p].size()));
  }
  for (size_t b = 0; b < passes_.buffer_offsets_.size(); ++b) {
    if (next_states_[b]) {
      results.buffers.push_back(memory_.ToHost(next_states_[b]));
      continue;
    }
    results.buffers.push_back(memory_.ToHost(buffers_.data<float>() + passes_.buffer_offsets_[b],
                                             passes_.node_.buffers[b].size()));
  }
  return results;
}

OpResults OpPasses::Run(const OpValues& values, Options options) {
  Microbatch microbatch(*this, 0, values, options);
  microbatch.Forward();
  microbatch.BackwardInput();
  microbatch.BackwardWeight();
  return microbatch.results();
}

std::vector<float> OpPasses::Predictions() {
  const int64_t count = case_.samples * kernels_->prediction_type().elements();
  if (!is_loss() || kernels_->prediction_type().dims.empty()) return {};
  DeviceMemory memory(backend_);
  const OpValues values = Values();
  std::vector<float> flat(weight_count_, 0.0f);
  for (size_t p = 0; p < values.parameters.size(); ++p) {
    std::copy(values.parameters[p].begin(), values.parameters[p].end(), flat.begin() + offsets_[p]);
  }
  const Tensor weights = memory.ToDevice(flat, {weight_count_});
  Tensor mirror = memory.Poisoned(DType::kBf16, {weight_count_});
  if (!flat.empty()) {
    backend_.ConvertToBf16(mirror.data<uint16_t>(), weights.data<float>(), weight_count_);
  }
  const Tensor input =
      memory.ToDevice(values.inputs[0], {case_.samples * case_.inputs[0].type.elements()});
  const Tensor output = memory.Poisoned(DType::kF32, {count});
  const Tensor kept = memory.Poisoned(DType::kU8, {needs_.kept_bytes});
  Tape tape;
  tape.inputs[0] = input.buffer.data();
  tape.output = output.buffer.data();
  tape.kept = kept ? kept.buffer.data() : nullptr;
  EXPECT_THAT(
      kernels_->Predict({weights.data<float>(), mirror.data<uint16_t>(), offsets_.data()}, tape),
      IsOk());
  return memory.ToHost(output);
}

double OpPasses::Objective(const OpValues& values) {
  Microbatch microbatch(*this, 0, values, {});
  microbatch.Forward();
  const std::vector<float> output = microbatch.results().output;
  const std::vector<float> gradient = GradOutput();
  double sum = 0.0;
  for (size_t i = 0; i < output.size(); ++i) {
    sum += static_cast<double>(output[i]) * static_cast<double>(gradient[i]);
  }
  return sum;
}

}  // namespace penstock
