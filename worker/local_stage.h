// LocalStage: one of a worker's stages with the tensors that wait between its actions.
//
// Where pipelines go there and back, kept inputs wait in the Stage itself, since F and R may be of
// two local stages with one Stage, and then no message carries them.
//
// Thread safety: the executor's thread; the meter may be read by any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compute/stage.h"
#include "compute/transfers.h"
#include "job/run/run_schedule.h"
#include "schedule/microbatch_table.h"
#include "worker/message_coder.h"
#include "worker/stage_meter.h"
#include "worker/state_file.h"

namespace penstock {

// Values by microbatch. The machine has allowed the action, so a missing value is our own mistake.
template <typename Value>
class WaitingTable {
 public:
  void Put(int64_t microbatch, Value value) { table_.Insert(microbatch) = std::move(value); }
  Value Take(int64_t microbatch) {
    Value* value = table_.Find(microbatch);
    PENSTOCK_CHECK(value != nullptr);
    Value taken = std::exchange(*value, Value());
    table_.Erase(microbatch);
    return taken;
  }

 private:
  MicrobatchTable<Value> table_;
};
using TensorTable = WaitingTable<Tensor>;      // on the device
using OutgoingTable = WaitingTable<Outgoing>;  // on their way to the host

struct LocalStage {
  StageId id;
  LayerRange layers;             // of the model
  std::shared_ptr<Stage> stage;  // there and back that of all local stages with these layers
  std::unique_ptr<StageMeter> meter;
  StageLateness lateness;
  int64_t first_version = 0;  // updates before this run
  Stage::MemoryStats memory;  // when it was made; of a shared one at its first stage alone

  std::optional<StateFile::Reading> reading;  // from LOAD to the first pass

  TensorTable inputs;            // until F
  TensorTable outputs;           // from F to SEND_F
  OutgoingTable losses;          // from F to I, of the last stage
  TensorTable output_gradients;  // until I
  TensorTable input_gradients;   // from I to SEND_B

  StageCoders coders;  // of what it sends to other workers

  // Room for one update's clipping, by layer.
  std::vector<int> owners_before;      // layers of other stages whose parameters it shares
  std::vector<double> squared_norms;   // by layer of the model
  std::vector<float> gradient_scales;  // by layer of the model

  bool offloads = false;            // some of its stashes leave the device
  bool file_is_waited_for = false;  // its worker keeps weights and state in a file
  bool told_of_graphs = false;      // why there are none
};

}  // namespace penstock
