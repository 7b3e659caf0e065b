#include "tests/bench/roofline.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "job/profile/model_profile.h"

namespace penstock {
namespace {

constexpr double kNumberBytes = 4;  // f32
constexpr double kMirrorBytes = 2;  // bf16

bool Contains(InputSet set, size_t input) { return (set >> input & 1) != 0; }

// A node with the sizes of all that its passes may read and write, for a microbatch.
class NodeBytes {
 public:
  NodeBytes(const ModelGraph& model, const Node& node, int64_t samples, Precision precision,
            const TapeNeeds& needs)
      : model_(model), node_(node), samples_(samples), needs_(needs) {
    const double number_bytes = HasMirror(precision) ? kMirrorBytes : kNumberBytes;
    for (const ParameterSpec& parameter : node.parameters) {
      const double numbers = NumbersUsed(parameter);
      weights_ += numbers * number_bytes;
      if (!parameter.frozen) gradients_ += numbers * kNumberBytes;
    }
  }

  double Forward() const {
    if (needs_.passes_input) return 0;
    return Inputs(kAllInputs) + weights_ + Output() + Blocks(needs_.stash_bytes, needs_.kept_bytes);
  }

  bool HasInputGradient() const {
    return std::any_of(node_.inputs.begin(), node_.inputs.end(),
                       [&](int input) { return model_.NeedsGradient(input); });
  }

  double BackwardInput() const {
    if (!node_.needs_gradient) return 0;
    double written = Blocks(needs_.weight_stash_bytes);
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      const bool is_written =
          model_.NeedsGradient(node_.inputs[i]) && !Contains(needs_.passes_gradient, i);
      if (is_written) written += Input(i);
    }
    if (written == 0) return 0;
    return written + GradOutput() + Blocks(needs_.stash_bytes) + Inputs(needs_.inputs_for_input) +
           (needs_.output_for_input ? Output() : 0) + (HasInputGradient() ? weights_ : 0);
  }

  // Gradients are added to, so they are read and written.
  double BackwardWeight() const {
    if (!node_.trains()) return 0;
    return Blocks(needs_.kept_bytes, needs_.weight_stash_bytes) + Inputs(needs_.inputs_for_weight) +
           (needs_.grad_output_for_weight ? GradOutput() : 0) + 2 * gradients_;
  }

 private:
  template <typename... Sizes>
  static double Blocks(Sizes... sizes) {
    return (static_cast<double>(sizes) + ...);
  }

  // A node that looks up its first input in a table reads a row of it for each id.
  double NumbersUsed(const ParameterSpec& parameter) const {
    const auto all = static_cast<double>(parameter.size());
    const bool is_table = model_.TypeOf(node_.inputs[0]).dtype == DType::kI32;
    return is_table ? std::min(all, static_cast<double>(samples_ * node_.output.elements())) : all;
  }

  double Input(size_t i) const {
    return static_cast<double>(samples_ * model_.TypeOf(node_.inputs[i]).size_bytes());
  }
  double Inputs(InputSet set) const {
    double bytes = 0;
    for (size_t i = 0; i < node_.inputs.size(); ++i) bytes += Contains(set, i) ? Input(i) : 0;
    return bytes;
  }
  double Output() const {
    if (node_.op->is_loss()) return kNumberBytes;
    return static_cast<double>(samples_ * node_.output.size_bytes());
  }
  double GradOutput() const { return node_.op->is_loss() ? 0 : Output(); }

  const ModelGraph& model_;
  const Node& node_;
  const int64_t samples_;
  const TapeNeeds& needs_;
  double weights_ = 0;
  double gradients_ = 0;
};

std::string RowOf(const RooflineRow& row, const MachineRates& rates) {
  const bool computes =
      row.work.flops / rates.flops_per_second >= row.work.bytes / rates.bytes_per_second;
  return absl::StrFormat("| %s | %s | %.3f | %.3f | %.2f | %.3f | %s | %.0f %% | %.2f |\n",
                         row.layers, row.pass, row.ms, row.work.flops * 1e-9, row.work.bytes * 1e-6,
                         row.bound_ms, computes ? "operations" : "bytes",
                         100 * row.bound_ms / row.ms, row.gap_ms());
}

}  // namespace

PassWork& PassWork::operator+=(const PassWork& other) {
  flops += other.flops;
  bytes += other.bytes;
  return *this;
}

LayerWork WorkOf(const ModelGraph& model, const LayerSpec& layer, int64_t samples,
                 Precision precision, absl::Span<const TapeNeeds> needs) {
  LayerWork work;
  for (int n = layer.first_node; n < layer.end_node(); ++n) {
    const Node& node = model.nodes[n];
    const std::vector<ValueType> inputs = model.InputTypes(node);
    const OpCost cost = node.op->cost({node.attributes, inputs});
    const NodeBytes bytes(model, node, samples, precision, needs[n - layer.first_node]);
    const auto count = static_cast<double>(samples);
    work.forward += {count * cost.forward_flops, bytes.Forward()};
    work.backward_input +=
        {bytes.HasInputGradient() ? count * cost.backward_input_flops : 0, bytes.BackwardInput()};
    work.backward_weight +=
        {node.trains() ? count * cost.backward_weight_flops : 0, bytes.BackwardWeight()};
  }
  return work;
}

PassWork WorkOfUpdate(int64_t parameters, int64_t states, Precision precision) {
  const double bytes = (4 + 2 * static_cast<double>(states)) * kNumberBytes +
                       (HasMirror(precision) ? kMirrorBytes : 0);
  return {.bytes = static_cast<double>(parameters) * bytes};
}

double BoundMs(const PassWork& work, const MachineRates& rates) {
  return 1e3 * std::max(work.flops / rates.flops_per_second, work.bytes / rates.bytes_per_second);
}

absl::StatusOr<std::vector<RooflineRow>> RooflineOf(const ModelGraph& model,
                                                    const v1::ModelProfile& profile,
                                                    const OptimizerConfig& optimizer,
                                                    int64_t samples, Precision precision,
                                                    const MachineRates& rates) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<TapeNeeds> needs,
                            TapeNeedsOf(profile, model, samples));
  std::vector<RooflineRow> rows;
  double update_ms = 0;
  std::map<std::string, size_t> first_rows;  // by shape
  for (int l = 0; l < model.size(); ++l) {
    const LayerSpec& layer = model.layers[l];
    const v1::ShapeProfile& shape = ShapeOf(profile, profile.layers(l));
    update_ms += shape.update().ms();
    const auto [entry, is_new] = first_rows.emplace(shape.shape(), rows.size());
    if (!is_new) {
      for (size_t row = entry->second; row < entry->second + 3; ++row) ++rows[row].count;
      continue;
    }
    const auto size =
        std::find_if(shape.sizes().begin(), shape.sizes().end(),
                     [&](const v1::SizeProfile& each) { return each.samples() == samples; });
    if (size == shape.sizes().end()) {
      return absl::InternalError(
          absl::StrCat("the profile has no microbatches of ", samples, " samples"));
    }
    const LayerWork work =
        WorkOf(model, layer, samples, precision,
               absl::MakeConstSpan(needs).subspan(layer.first_node, layer.node_count));
    rows.push_back({layer.name, 1, "F", size->forward().ms(), work.forward});
    rows.push_back({layer.name, 1, "I", size->backward_input().ms(), work.backward_input});
    rows.push_back({layer.name, 1, "W", size->backward_weight().ms(), work.backward_weight});
  }
  const auto states = static_cast<int64_t>(StateNamesOf(optimizer).size());
  rows.push_back({"all layers", 1, "update", update_ms,
                  WorkOfUpdate(model.parameter_count(), states, precision)});
  std::erase_if(rows, [](const RooflineRow& row) { return row.work == PassWork(); });
  for (RooflineRow& row : rows) {
    if (row.count > 1) absl::StrAppend(&row.layers, ", ", row.count, " of them");
    row.bound_ms = BoundMs(row.work, rates);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const RooflineRow& a, const RooflineRow& b) {
    return a.gap_ms() > b.gap_ms();
  });
  return rows;
}

std::string RooflineTable(absl::Span<const RooflineRow> rows, int rows_max,
                          const MachineRates& rates) {
  std::string table =
      "| layer | pass | ms | GFLOP | MB | bound, ms | by | of the bound | gap of all, ms |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  double ms = 0, bound_ms = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (static_cast<int>(i) < rows_max) table += RowOf(rows[i], rates);
    ms += rows[i].count * rows[i].ms;
    bound_ms += rows[i].count * rows[i].bound_ms;
  }
  absl::StrAppendFormat(&table, "a step: %.2f ms, bound %.2f ms, %.0f %% of the bound\n", ms,
                        bound_ms, 100 * bound_ms / ms);
  return table;
}

}  // namespace penstock
