// OpPasses: the kernels of one node on one back-end, run pass by pass on memory that tests watch.
//
// Every block and output is poisoned (NaN) before its pass. What tape_needs() does not announce is poisoned in the
// passes that follow F, so whatever is read there without being announced spoils the results.
#pragma once

#include <memory>
#include <vector>

#include "tests/compute/device_memory.h"
#include "tests/compute/op_case.h"

namespace penstock {

// f32 values by input; entries of other types are empty.
struct OpValues {
  std::vector<std::vector<float>> inputs, parameters;
};

struct OpResults {
  std::vector<float> output;
  std::vector<std::vector<float>> grad_inputs;  // by input; empty where there is none
  std::vector<std::vector<float>> gradients;    // by parameter
  std::vector<std::vector<float>> buffers;      // after F
  friend bool operator==(const OpResults&, const OpResults&) = default;
};

class OpPasses {
 public:
  // REQUIRES: `backend` and `op_case` outlive it.
  OpPasses(Backend& backend, const OpCase& op_case, Precision precision);

  const Node& node() const { return node_; }
  // Of microbatch `number`.
  OpValues Values(uint32_t number = 0) const;
  std::vector<float> GradOutput(uint32_t number = 0) const;

  struct Options {
    bool training = true;
    bool wants_grad_inputs = true;
    float initial_gradient = 0.0f;  // what the gradients hold before W
  };
  // One microbatch on its way. Passes come in the order F, I, W; those of others may be in between.
  class Microbatch {
   public:
    Microbatch(OpPasses& passes, uint32_t number, const OpValues& values, Options options);

    void Forward();
    void BackwardInput();
    void BackwardWeight();
    OpResults results();

   private:
    void PutInputs(const OpValues& values);
    void PutBuffers();
    void PutStates();
    Tape TapeOf(InputSet read);
    void Poison(Tensor& tensor);

    OpPasses& passes_;
    const uint32_t number_;
    const Options options_;
    DeviceMemory memory_;
    Tensor weights_, mirror_, gradients_, buffers_;
    std::vector<Tensor> states_, next_states_;  // by buffer; empty for statistics
    std::vector<Tensor> inputs_, poisoned_inputs_, grad_inputs_;
    Tensor output_, poisoned_output_, grad_output_, poisoned_grad_output_;
    Tensor stash_, kept_, weight_stash_;
  };

  // All passes of one microbatch. The two with one argument take the case's own values.
  OpResults Run(const OpValues& values, Options options);
  OpResults Run(Options options) { return Run(Values(), options); }
  OpResults Run() { return Run({}); }
  // Empty if it has none.
  std::vector<float> Predictions();
  // Of F alone: the sum of output times its gradient, of a loss times its scale.
  double Objective(const OpValues& values);
  bool passes_gradient(size_t input) const { return (needs_.passes_gradient >> input & 1) != 0; }

 private:
  bool is_carried(size_t buffer) const {
    return node_.buffers[buffer].kind == BufferSpec::Kind::kCarried;
  }
  bool is_loss() const { return node_.op->is_loss(); }
  int64_t output_count() const { return is_loss() ? 1 : case_.samples * node_.output.elements(); }
  PassContext Context(bool training) const;

  Backend& backend_;
  const OpCase& case_;
  const Node node_;
  std::unique_ptr<OpKernels> kernels_;
  TapeNeeds needs_;
  std::vector<int64_t> offsets_;  // of parameters
  std::vector<int64_t> buffer_offsets_;
  int64_t weight_count_ = 0, buffer_count_ = 0;
};

}  // namespace penstock
